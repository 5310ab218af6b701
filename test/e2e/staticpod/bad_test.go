// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
)

// badConfiguration shows what an operator sees of a mistake: a line in the pod's log, and the state of its container.
func (s *story) badConfiguration(t *testing.T) {
	s.ours(t)
	conf := filepath.Join(kubernetesDir, "controller-manager.conf")
	good, err := os.ReadFile(conf)
	require.NoError(t, err)
	// kubeconfig changes the kubeconfig and has the container start again.
	kubeconfig := func(t *testing.T, change func(*clientcmdapi.Config)) {
		config, err := clientcmd.Load(good)
		require.NoError(t, err)
		change(config)
		data, err := clientcmd.Write(*config)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(conf, data, 0o600))
		s.restart(t)
	}
	for _, tc := range []struct {
		name string
		make func(*testing.T)
		log  string
		want func(corev1.ContainerStatus) error
	}{
		{"unreachable apiserver", func(t *testing.T) {
			kubeconfig(t, func(c *clientcmdapi.Config) { c.Clusters["cluster"].Server = "https://127.0.0.1:1" })
		}, `dial tcp 127\.0\.0\.1:1: connect: connection refused`, runs},
		{"certificate of another cluster", func(t *testing.T) {
			kubeconfig(t, func(c *clientcmdapi.Config) {
				c.AuthInfos["user"].ClientCertificateData, c.AuthInfos["user"].ClientKeyData = s.stranger(t)
			})
		}, `Unauthorized`, runs},
		{"authority of another cluster", func(t *testing.T) {
			kubeconfig(t, func(c *clientcmdapi.Config) {
				c.Clusters["cluster"].CertificateAuthorityData, _ = s.stranger(t)
			})
		}, `x509: certificate signed by unknown authority`, runs},
		{"missing RBAC", func(t *testing.T) {
			kubeconfig(t, func(*clientcmdapi.Config) {})
			s.takeRights(t)
			s.restart(t)
		}, `User \\?"system:kube-controller-manager\\?" cannot get resource \\?"leases\\?"`, runs},
		{"unknown gate", func(t *testing.T) {
			s.replace(t, strings.Replace(s.shipped, "StaleControllerConsistency=true", "StaleControlerConsistency=true", 1))
		}, `unrecognized feature gate: StaleControlerConsistency`, exits},
		{"our gates on the stock image", func(t *testing.T) {
			s.replace(t, regexp.MustCompile(`image: .*`).ReplaceAllString(s.shipped, "image: registry.k8s.io/kube-controller-manager:"+s.base))
		}, `unrecognized feature gate: (MonitorInformerStaleness|StaleControllerConsistency)`, exits},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.make(t)
			s.eventually(t, "the log says so", func(ctx context.Context) error { return s.logged(ctx, tc.log) })
			s.eventually(t, "the container's state", func(ctx context.Context) error {
				_, status, err := s.podAndContainer(ctx)
				if err != nil {
					return err
				}
				return tc.want(status)
			})
			if leads, err := s.isLeader(t.Context()); err == nil {
				require.False(t, leads)
			}
		})
	}
	s.replace(t, s.shipped)
	s.isOurs(t)
}

// restart has the kubelet start the container again, as after a crash.
func (s *story) restart(t *testing.T) {
	before := s.status(t).RestartCount
	s.kill(t, "SIGKILL")
	s.restarted(t, before)
}

// exits is nil if the container has ended with 1 and is started again and again.
func exits(status corev1.ContainerStatus) error {
	ended := status.State.Terminated
	if ended == nil {
		ended = status.LastTerminationState.Terminated
	}
	if ended == nil || ended.ExitCode != 1 || waiting(status) != "CrashLoopBackOff" {
		return fmt.Errorf("%+v", status)
	}
	return nil
}

// runs is nil if the container runs on, as one does that tries again by itself.
func runs(status corev1.ContainerStatus) error {
	if status.State.Running == nil {
		return fmt.Errorf("%+v", status)
	}
	return nil
}

// stranger is a certificate and its key from an authority that the cluster does not know.
func (s *story) stranger(t *testing.T) (cert, key []byte) {
	cert, key, err := certutil.GenerateSelfSignedCertKey("stranger", nil, nil)
	require.NoError(t, err)
	return cert, key
}

// takeRights takes kube-controller-manager's own rights away until the test ends: those to everything, and those to its
// lease.
func (s *story) takeRights(t *testing.T) {
	everything := s.client.RbacV1().ClusterRoleBindings()
	lease := s.client.RbacV1().RoleBindings(metav1.NamespaceSystem)
	first, err := everything.Get(t.Context(), "system:kube-controller-manager", metav1.GetOptions{})
	require.NoError(t, err)
	second, err := lease.Get(t.Context(), "system::leader-locking-kube-controller-manager", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, everything.Delete(t.Context(), first.Name, metav1.DeleteOptions{}))
	require.NoError(t, lease.Delete(t.Context(), second.Name, metav1.DeleteOptions{}))
	t.Cleanup(func() {
		first.ResourceVersion, first.UID, second.ResourceVersion, second.UID = "", "", "", ""
		_, err := everything.Create(context.Background(), first, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = lease.Create(context.Background(), second, metav1.CreateOptions{})
		require.NoError(t, err)
	})
}

// refusesTampered changes a byte of our image's archive: containerd does not take it. It must not have the image yet, or it
// takes what it has for what is in the archive.
func (n *node) refusesTampered(t *testing.T) {
	archive, err := os.ReadFile(filepath.Join(n.dir, "ours.tar"))
	require.NoError(t, err)
	archive[len(archive)/2] ^= 1 // the largest layer is there
	path := filepath.Join(n.state, "tampered.tar")
	require.NoError(t, os.WriteFile(path, archive, 0o600))
	err = n.ctr(t.Context(), "images", "import", path)
	require.ErrorContains(t, err, "digest")
	require.NoError(t, os.Remove(path))
}
