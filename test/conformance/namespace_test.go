// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// TestNamespaces: kubernetes-api-concepts, "Resource URIs": what is in a namespace is deleted with it, by our
// kube-controller-manager, and access to it is decided on for each namespace.
//
//conformance:api-concepts Resource URIs: what is in a namespace is deleted with it
//conformance:api-concepts Resource URIs: access is decided on for each namespace
func TestNamespaces(t *testing.T) {
	c := own(t, controlplane.Options{})
	going, staying := newHistory(t, c, "going"), newHistory(t, c, "staying")
	d := newDefinition(t, c, "Clusterwide", versionOf("v1", true, true, 10))
	d.create(t, "v1", "a", 1)
	for _, h := range []*history{going, staying} {
		h.write(t, "a")
		h.write(t, "b")
	}

	reader := c.as(t, "reader")
	c.grant(t, "staying", "reader", "list", "configmaps")
	eventually(t, "the role to be in force", func() (bool, error) {
		_, err := staying.client(reader).List(t.Context(), metav1.ListOptions{})
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	_, err := going.client(reader).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "another namespace: %v", err)
	_, err = reader.any.Resource(configMaps).List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "all namespaces: %v", err)

	_, err = c.StartKCM(t.Context(), controlplane.KCMOptions{Arm: controlplane.ArmP})
	require.NoError(t, err)
	require.NoError(t, c.kube.CoreV1().Namespaces().Delete(t.Context(), "going", metav1.DeleteOptions{}))
	within(t, time.Minute, "the namespace to be gone", func() (bool, error) {
		_, err := c.kube.CoreV1().Namespaces().Get(t.Context(), "going", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	all, err := c.any.Resource(configMaps).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.namespace=going"})
	require.NoError(t, err)
	require.Empty(t, all.Items)
	left, err := staying.client(c).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
	require.NoError(t, err)
	require.Equal(t, staying.at(t, staying.newest()), itemsOf(t, left), "another namespace's")
	require.Len(t, d.sizes(t, "v1"), 1, "and what is in none")
}

// TestSubresourceRights: kubernetes-api-concepts, "subresources that allow fine grained authorization".
//
//conformance:api-concepts Resource URIs: and for each subresource: who may write pods may not write their status
func TestSubresourceRights(t *testing.T) {
	c := shared(t)
	namespace := c.namespace(t, "subresource-rights")
	_, err := c.kube.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for user, granted := range map[string]struct{ may, mayNot []string }{
		"owner": {nil, []string{"status"}}, "kubelet": {[]string{"status"}, nil},
	} {
		pods := c.as(t, user).kube.CoreV1().Pods(namespace)
		patch := func(subresource ...string) error {
			_, err := pods.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"status":{"message":"by `+user+`"}}`), metav1.PatchOptions{}, subresource...)
			return err
		}
		require.True(t, apierrors.IsForbidden(patch()))
		require.True(t, apierrors.IsForbidden(patch("status")))
		c.grant(t, namespace, user, "patch", strings.Join(append([]string{"pods"}, granted.may...), "/"))
		eventually(t, "the role to be in force", func() (bool, error) {
			err := patch(granted.may...)
			if apierrors.IsForbidden(err) {
				return false, nil
			}
			return err == nil, err
		})
		require.True(t, apierrors.IsForbidden(patch(granted.mayNot...)), "%s may write something else", user)
	}
}
