// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/kubernetes/pkg/features" // the gates that kube-controller-manager has
	"sigs.k8s.io/yaml"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
)

// What operators expect of kube-controller-manager's static pod, whoever makes it. That kubeadm makes this very file is
// what hack/verify-manifests.sh proves.
func TestStaticPod(t *testing.T) {
	data, err := os.ReadFile("kube-controller-manager.yaml")
	require.NoError(t, err)
	var pod corev1.Pod
	require.NoError(t, yaml.UnmarshalStrict(data, &pod))
	require.Len(t, pod.Spec.Containers, 1)
	container := pod.Spec.Containers[0]

	require.Equal(t, "system-node-critical", pod.Spec.PriorityClassName)
	require.True(t, pod.Spec.HostNetwork)
	require.Equal(t, corev1.SeccompProfileTypeRuntimeDefault, pod.Spec.SecurityContext.SeccompProfile.Type)
	require.Equal(t, corev1.PullIfNotPresent, container.ImagePullPolicy)
	require.Equal(t, "200m", container.Resources.Requests.Cpu().String())
	require.Empty(t, container.Resources.Limits)
	require.Contains(t, container.Command, "--bind-address=127.0.0.1")
	require.Nil(t, container.ReadinessProbe)
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.StartupProbe} {
		require.Equal(t, "/healthz", probe.HTTPGet.Path)
		require.Equal(t, "127.0.0.1", probe.HTTPGet.Host)
		require.Equal(t, corev1.URISchemeHTTPS, probe.HTTPGet.Scheme)
		require.EqualValues(t, 15, probe.TimeoutSeconds)
	}
	for _, mount := range container.VolumeMounts {
		require.True(t, mount.ReadOnly, mount.Name)
	}

	t.Run("names each of our gates, and they are on", func(t *testing.T) {
		upstreams := utilfeature.DefaultMutableFeatureGate
		all := upstreams.DeepCopy()
		require.NoError(t, features.Register(all))
		want := sets.New[string]()
		for gate := range all.GetAll() {
			if _, known := upstreams.GetAll()[gate]; !known {
				want.Insert(string(gate) + "=true")
			}
		}
		got := sets.New[string]()
		for _, arg := range container.Command {
			if gates, ok := strings.CutPrefix(arg, "--feature-gates="); ok {
				require.Empty(t, got, "the flag is there twice")
				got.Insert(strings.Split(gates, ",")...)
			}
		}
		require.Equal(t, want, got)
	})
}
