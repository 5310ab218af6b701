// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The stages say what a node and a pod do by themselves: see each file.
//
//go:embed kwok/*.yaml
var stageFiles embed.FS

const (
	nodeLeaseNamespace   = "kube-node-lease"
	defaultLeaseDuration = 40 * time.Second

	// AliveLabel marks the nodes that kwok acts for. Taking it away is how one node dies: its lease is
	// no longer renewed, its status no longer reported, and its pods stay as they are.
	AliveLabel = "controlplane.fresh-kcm.io/alive"
	// CompleteLabel on a pod makes it succeed as soon as it runs, as the pods of a Job do.
	CompleteLabel = "controlplane.fresh-kcm.io/complete"
)

func (c *Cluster) newKwok() (*Component, error) {
	kubeconfig, err := c.clientKubeconfig(kwokBinary, kwokUser)
	if err != nil {
		return nil, err
	}
	stages, err := c.writeStages()
	if err != nil {
		return nil, err
	}
	comp, err := c.newComponent(kwokBinary, kwokBinary, 1, c.options.Kwok)
	if err != nil {
		return nil, err
	}
	// Whatever a developer keeps in their home directory for kwok is not for us.
	comp.env = []string{"KWOK_WORKDIR=" + filepath.Join(c.dir, "data", "kwok")}
	var lease time.Duration // zero: kwok leaves leases alone
	if !c.options.LeaseGenerator {
		lease = c.leaseDuration()
	}
	comp.args = func() ([]string, error) {
		return []string{
			"--kubeconfig=" + kubeconfig,
			"--config=" + stages,
			"--manage-nodes-with-label-selector=" + AliveLabel,
			"--node-lease-duration-seconds=" + strconv.Itoa(int(lease.Seconds())),
			"--server-address=" + comp.ports[0].addr(),
			"--cidr=10.128.0.0/9", // addresses of pods; nothing is ever sent there
		}, nil
	}
	client, err := etcdHTTPClient(c.pki)
	if err != nil {
		return nil, err
	}
	comp.ready = func(ctx context.Context) error {
		_, err := get(ctx, client, "http://"+comp.ports[0].addr()+"/healthz")
		return err
	}
	return comp, nil
}

// leaseDuration is what the nodes' leases say.
func (c *Cluster) leaseDuration() time.Duration {
	return cmp.Or(c.options.NodeLeaseDuration, defaultLeaseDuration)
}

// startLeases starts the generator, if there is to be one. Its requests are kwok's: under the same user and priority, and
// not in the audit log.
func (c *Cluster) startLeases(ctx context.Context) (err error) {
	if !c.options.LeaseGenerator {
		return nil
	}
	who, err := c.pki.cluster.client(kwokUser)
	if err != nil {
		return err
	}
	config := c.firstServer().AdminConfig()
	config.CertData, config.KeyData, config.UserAgent = who.cert, who.key, kwokUser
	c.leases, err = startLeaseGenerator(ctx, config, c.leaseDuration())
	return err
}

// writeStages puts the embedded stages into one file, the form in which kwok takes them.
func (c *Cluster) writeStages() (string, error) {
	names, err := fs.Glob(stageFiles, "kwok/*.yaml")
	if err != nil {
		return "", err
	}
	var all [][]byte
	for _, name := range names {
		data, err := stageFiles.ReadFile(name)
		if err != nil {
			return "", err
		}
		all = append(all, data)
	}
	path := filepath.Join(c.dir, "data", "kwok", "stages.yaml")
	if err := os.WriteFile(path, bytes.Join(all, []byte("\n---\n")), 0o644); err != nil {
		return "", fmt.Errorf("writing kwok's stages: %w", err)
	}
	return path, nil
}

// grantKwok gives kwok the permissions it uses and, as kubelets have, a priority level apart from the
// traffic that a test is about.
func (c *Cluster) grantKwok(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return fmt.Errorf("granting kwok its permissions: %w", err)
	}
	meta := metav1.ObjectMeta{Name: kwokUser}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kwokUser}}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status", "pods/status"}, Verbs: []string{"patch"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: kwokUser}}
	leases := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch", "create", "update"}},
	}}
	leasesBinding := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: kwokUser}}
	flow := &flowcontrolv1.FlowSchema{ObjectMeta: meta, Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "node-high"},
		MatchingPrecedence:         1000,
		DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
			Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: kwokUser}}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
				Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"},
			}},
		}},
	}}

	rbac, options := client.RbacV1(), metav1.CreateOptions{}
	steps := []func() error{
		func() error { _, err := rbac.ClusterRoles().Create(ctx, role, options); return err },
		func() error { _, err := rbac.ClusterRoleBindings().Create(ctx, binding, options); return err },
		func() error { _, err := rbac.Roles(nodeLeaseNamespace).Create(ctx, leases, options); return err },
		func() error {
			_, err := rbac.RoleBindings(nodeLeaseNamespace).Create(ctx, leasesBinding, options)
			return err
		},
		func() error { _, err := client.FlowcontrolV1().FlowSchemas().Create(ctx, flow, options); return err },
	}
	for _, step := range steps {
		// The apiserver makes its namespaces soon after it is ready, not before.
		if err := retry(ctx, apierrors.IsNotFound, step); err != nil {
			return fmt.Errorf("granting kwok its permissions: %w", err)
		}
	}
	return nil
}

// retry repeats step while it fails in a passing way.
func retry(ctx context.Context, passing func(error) bool, step func() error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := step()
		if err == nil || !passing(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}
