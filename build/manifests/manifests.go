// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests holds what a cluster needs besides the binary, as files for kubectl, and applies it for tests
// and the lab.
package manifests

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
)

// RBAC grants what live reads need.
//
//go:embed rbac.yaml
var RBAC []byte

// StalenesszRBAC has the role of those who may read /stalenessz.
//
//go:embed stalenessz-rbac.yaml
var StalenesszRBAC []byte

// ApplyRBAC creates what is in RBAC. What is there already is left as it is. Its namespaces must exist.
func ApplyRBAC(ctx context.Context, client kubernetes.Interface) error {
	return apply(ctx, client, "rbac.yaml", RBAC)
}

// ApplyStalenesszRBAC creates what is in StalenesszRBAC. What is there already is left as it is.
func ApplyStalenesszRBAC(ctx context.Context, client kubernetes.Interface) error {
	return apply(ctx, client, "stalenessz-rbac.yaml", StalenesszRBAC)
}

func apply(ctx context.Context, client kubernetes.Interface, name string, file []byte) error {
	objects, err := decode(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	rbac, options := client.RbacV1(), metav1.CreateOptions{}
	for _, object := range objects {
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			_, err = rbac.ClusterRoles().Create(ctx, o, options)
		case *rbacv1.ClusterRoleBinding:
			_, err = rbac.ClusterRoleBindings().Create(ctx, o, options)
		case *rbacv1.Role:
			_, err = rbac.Roles(o.Namespace).Create(ctx, o, options)
		case *rbacv1.RoleBinding:
			_, err = rbac.RoleBindings(o.Namespace).Create(ctx, o, options)
		default:
			err = fmt.Errorf("it has a %T, which is not RBAC", object)
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("applying %s: %w", name, err)
		}
	}
	return nil
}

func decode(file []byte) ([]runtime.Object, error) {
	var out []runtime.Object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(file)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			return nil, err
		}
		out = append(out, object)
	}
}
