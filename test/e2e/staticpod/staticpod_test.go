// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// TestStaticPod is one life of a cluster, part after part; each part leaves Fresh KCM leading for the next.
//
//conformance:kep-5647 Feature Enablement and Rollback: upgrade, downgrade and upgrade leave nothing behind
func TestStaticPod(t *testing.T) {
	state := os.Getenv("STATIC_POD_STATE")
	if state == "" {
		t.Skip("not run: make static-pod-test runs it, as root and in namespaces of its own")
	}
	klog.SetLogger(logr.Discard())
	root := os.Getenv("STATIC_POD_ROOT")
	n := &node{bin: filepath.Join(root, "_output", "bin"), dir: os.Getenv("STATIC_POD_DIR"), state: state}
	n.startContainerd(t)
	w := startWorld(t, n)
	n.startKubelet(t)
	s := &story{
		staticPod: &staticPod{world: w, name: container, port: 10257},
		manifests: filepath.Join(root, "build", "manifests"),
	}
	s.version, s.base = versions(t, root)
	for _, part := range parts {
		if !t.Run(part.name, func(t *testing.T) { part.run(s, t) }) {
			return
		}
	}
}

// part is one of the cluster's life.
type part struct {
	name string
	run  func(*story, *testing.T)
}

// parts are all, in order.
var parts = []part{
	{"StockAsKubeadmMakesIt", (*story).stock},
	{"UpgradeBackAndForth", (*story).upgrade},
	{"Probes", (*story).probes},
	{"Kill", (*story).killed},
	{"Hang", (*story).hung},
	{"Gates", (*story).gates},
	{"Handover", (*story).handover},
	{"BadConfiguration", (*story).badConfiguration},
	{"NoWrongAction", (*story).judge},
	{"WrongActionIsFound", (*story).wrong},
}

// unknown are the names in a filter that no part has.
func unknown(filter string) []string {
	if filter == "" {
		return nil
	}
	return slices.DeleteFunc(strings.Split(filter, "|"), func(name string) bool {
		return slices.ContainsFunc(parts, func(p part) bool { return p.name == name })
	})
}

// TestFilter fails if FILTER names a part that is not there: without it the first part would be run alone, and pass.
func TestFilter(t *testing.T) {
	require.Equal(t, []string{"typo", "Kil"}, unknown("Kill|typo|Kil"))
	require.Empty(t, unknown("Kill|Gates"))
	require.Empty(t, unknown(os.Getenv("STATIC_POD_FILTER")), "no part has such a name")
}

// story is what the parts share.
type story struct {
	*staticPod
	manifests     string
	version, base string // of Fresh KCM and of the stock one
	shipped       string // the manifest of ours, as kubeadm makes it
}

func versions(t *testing.T, root string) (version, base string) {
	text, err := os.ReadFile(filepath.Join(root, "build", "VERSION"))
	require.NoError(t, err)
	version = strings.TrimSpace(string(text))
	base, _, _ = strings.Cut(version, "+")
	return version, base
}

// election are timings that let a successor lead 4 s after its predecessor died; the manifest that we ship has the defaults.
const election = `  extraArgs:
  - {name: leader-elect-lease-duration, value: 4s}
  - {name: leader-elect-renew-deadline, value: 3s}
  - {name: leader-elect-retry-period, value: 1s}
`

// stockConfig is kubeadm's configuration without anything of ours.
func (s *story) stockConfig(t *testing.T) string {
	path := filepath.Join(s.state, "stock.yaml")
	s.node.write(t, path, "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: "+s.base+"\ncontrollerManager:\n"+election)
	return path
}

// ourConfig is kubeadm's configuration as we ship it, with our patch in place.
func (s *story) ourConfig(t *testing.T) string {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(s.manifests, "kubeadm", name))
		require.NoError(t, err)
		return string(text)
	}
	const patch = "patches/kube-controller-manager+strategic.yaml"
	s.node.write(t, filepath.Join(kubernetesDir, patch), read(patch))
	config := read("init.yaml")
	require.Contains(t, config, "  extraArgs:\n")
	path := filepath.Join(s.state, "ours.yaml")
	s.node.write(t, path, strings.Replace(config, "  extraArgs:\n", election, 1))
	return path
}

func (s *story) stock(t *testing.T) {
	s.byKubeadm(t, s.stockConfig(t))
	s.leads(t)
	s.runs(t, s.base)
	s.record(t)
	s.deploy(t)
}

// upgrade goes from the stock image to ours, back, and forth again, each time as an operator does with kubeadm, while
// the workload changes.
func (s *story) upgrade(t *testing.T) {
	stop := s.churn(t)
	s.keepsUp(t)

	t.Log("to ours, by the manifest that we ship")
	ours, err := os.ReadFile(filepath.Join(s.manifests, "kube-controller-manager.yaml"))
	require.NoError(t, err)
	s.staticPod.write(t, string(ours))
	s.isOurs(t)
	s.keepsUp(t)

	t.Log("back to stock")
	s.byKubeadm(t, s.stockConfig(t))
	s.leads(t)
	s.runs(t, s.base)
	s.keepsUp(t)

	t.Log("to ours again, by kubeadm with our patch")
	s.ours(t)
	s.keepsUp(t)

	stop()
	s.settled(t)
	s.judge(t)
}

// ours has kubeadm put Fresh KCM in place, if no part has done so yet.
func (s *story) ours(t *testing.T) {
	t.Helper()
	if s.shipped == "" {
		s.byKubeadm(t, s.ourConfig(t))
		s.shipped = s.manifest(t)
	}
	s.isOurs(t)
}

// isOurs waits until Fresh KCM leads with both gates on.
func (s *story) isOurs(t *testing.T) {
	t.Helper()
	s.leads(t)
	s.runs(t, s.version)
	s.gate(t, "MonitorInformerStaleness", true)
	s.gate(t, "StaleControllerConsistency", true)
}

// gate waits until a feature gate shows where an operator looks for it.
func (p *staticPod) gate(t *testing.T, name string, on bool) {
	t.Helper()
	value := map[bool]int{true: 1}[on]
	series := fmt.Sprintf(`kubernetes_feature_enabled{name=%q,stage="BETA"} %d`, name, value)
	for page, want := range map[string]string{"/metrics": series, "/flagz": fmt.Sprintf("%s=%t", name, on)} {
		p.eventually(t, want+" in "+page, func(ctx context.Context) error {
			text, err := p.get(ctx, page)
			if err == nil && !strings.Contains(text, want) {
				err = fmt.Errorf("%s does not have it", page)
			}
			return err
		})
	}
}

// probes shows that the kubelet's probes of our pod succeed.
func (s *story) probes(t *testing.T) {
	s.ours(t)
	s.eventually(t, "the pod is Ready and both probes have succeeded", func(ctx context.Context) error {
		pod, status, err := s.podAndContainer(ctx)
		if err != nil {
			return err
		}
		if !status.Ready || status.Started == nil || !*status.Started || status.RestartCount > 0 {
			return fmt.Errorf("%+v", status)
		}
		page, err := s.page(ctx, "https://127.0.0.1:10250/metrics/probes")
		if err != nil {
			return err
		}
		for _, kind := range []string{"Startup", "Liveness"} {
			series := fmt.Sprintf(`prober_probe_total{container=%q,namespace="kube-system",pod=%q,pod_uid=%q,probe_type=%q,result=`,
				container, pod.Name, pod.Annotations[hashAnnotation], kind)
			if !strings.Contains(page, series+`"successful"}`) {
				return fmt.Errorf("no %s probe has succeeded", kind)
			}
			if kind == "Liveness" && strings.Contains(page, series+`"failed"}`) {
				return fmt.Errorf("a %s probe failed", kind)
			}
		}
		return nil
	})
}

// killed shows that the kubelet restarts a process that died, and that the new one leads and reconciles.
func (s *story) killed(t *testing.T) {
	s.ours(t)
	before := s.status(t)
	s.kill(t, "SIGKILL")
	s.restarted(t, before.RestartCount)
	s.eventually(t, "the kubelet reports how the process ended", func(ctx context.Context) error {
		_, status, err := s.podAndContainer(ctx)
		if last := status.LastTerminationState.Terminated; err == nil && (last == nil || last.ExitCode != 137) {
			err = fmt.Errorf("%+v", status)
		}
		return err
	})
	s.leads(t)
	s.reconciles(t, 1001)
}

// hung shows that a liveness probe that fails has the container restarted. It leaves a manifest with probes that are quick
// to fail.
func (s *story) hung(t *testing.T) {
	s.ours(t)
	quick := strings.NewReplacer("failureThreshold: 8\n", "failureThreshold: 2\n      terminationGracePeriodSeconds: 1\n",
		"initialDelaySeconds: 10", "initialDelaySeconds: 1", "periodSeconds: 10", "periodSeconds: 1", "timeoutSeconds: 15", "timeoutSeconds: 2")
	s.replace(t, quick.Replace(s.shipped))
	s.leads(t)
	before := s.status(t).RestartCount
	s.kill(t, "SIGSTOP")
	s.restarted(t, before)
}

// gates switches each gate off and on again by an edit of the manifest.
func (s *story) gates(t *testing.T) {
	s.ours(t)
	const monitor, consistency = "MonitorInformerStaleness", "StaleControllerConsistency"
	for i, off := range []string{monitor, consistency, ""} {
		t.Logf("off: %s", cmp.Or(off, "none"))
		manifest := s.shipped
		if off != "" {
			manifest = strings.Replace(manifest, off+"=true", off+"=false", 1)
		}
		s.staticPod.write(t, manifest)
		s.leads(t)
		s.gate(t, monitor, off != monitor)
		s.gate(t, consistency, off != consistency)
		s.reconciles(t, 2000+i)
	}
}

// handover runs a second replica beside the first, on another port of the same node, kills the leader, and has the
// second one take over; then the other way round by taking the second one's manifest away.
func (s *story) handover(t *testing.T) {
	s.ours(t)
	second := &staticPod{world: s.world, name: container + "-2", port: 10258}
	manifest := strings.NewReplacer(
		"  name: kube-controller-manager\n  namespace", "  name: kube-controller-manager-2\n  namespace",
		"containerPort: 10257", "containerPort: 10258",
		"    - --leader-elect=true\n", "    - --leader-elect=true\n    - --secure-port=10258\n",
	).Replace(s.manifest(t))
	require.Contains(t, manifest, "--secure-port=10258")
	second.write(t, manifest)
	s.eventually(t, "the second one stands by", func(ctx context.Context) error {
		leads, err := second.isLeader(ctx)
		require.False(t, leads, "two lead")
		return err
	})
	require.NoError(t, s.leading(t.Context()))

	t.Log("the leader dies")
	before := s.status(t).RestartCount
	s.kill(t, "SIGKILL")
	second.leads(t)
	s.reconciles(t, 3001)
	s.restarted(t, before)
	leads, err := s.isLeader(t.Context())
	if err == nil {
		require.False(t, leads, "two lead")
	}

	t.Log("the new leader is taken away")
	second.remove(t)
	s.leads(t)
	s.reconciles(t, 3002)
}

func waiting(status corev1.ContainerStatus) string {
	if status.State.Waiting == nil {
		return ""
	}
	return status.State.Waiting.Reason
}
