// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// requireBinariesEnv turns a skip for want of binaries into a failure. "make test" sets it.
const requireBinariesEnv = "FRESH_KCM_REQUIRE_BINARIES"

func needBinaries(t *testing.T, arms ...Arm) {
	t.Helper()
	dir, err := FindBinDir()
	require.NoError(t, err)
	if err := CheckBinaries(dir, arms...); err != nil {
		if os.Getenv(requireBinariesEnv) == "1" {
			t.Fatal(err)
		}
		t.Skipf("not run: %v", err)
	}
}

// startCluster starts a cluster that ends with the test, and checks that nothing of it is left.
func startCluster(t *testing.T, options Options) (context.Context, *Cluster) {
	t.Helper()
	ctx := klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(2))))
	begin := time.Now()
	options.Progress = func(component string, state State) {
		t.Logf("%6.2fs %s %s", time.Since(begin).Seconds(), component, state)
	}
	c, err := Start(ctx, options)
	require.NoError(t, err)
	t.Logf("%6.2fs all ready in %s", time.Since(begin).Seconds(), c.Dir())
	t.Cleanup(func() {
		if t.Failed() {
			c.Keep()
		}
		var pids []int
		for _, s := range c.Components(ctx) {
			if s.PID != 0 {
				pids = append(pids, s.PID)
			}
		}
		stop := time.Now()
		require.NoError(t, c.Stop(ctx))
		t.Logf("stopped in %.2fs", time.Since(stop).Seconds())
		require.NoError(t, c.Stop(ctx), "a second Stop")
		for _, pid := range pids {
			require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "pid %d", pid)
		}
		if !t.Failed() {
			require.NoError(t, os.RemoveAll(c.Dir()), "kept after a failure that the test made")
		}
	})
	return ctx, c
}

func newDaemonSet(name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/none"}}},
			},
		},
	}
}

func createDaemonSet(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, pods int32) {
	t.Helper()
	_, err := client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, newDaemonSet(name), metav1.CreateOptions{})
	require.NoError(t, err)
	begin := time.Now()
	require.Eventually(t, func() bool {
		ds, err := client.AppsV1().DaemonSets(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return err == nil && ds.Status.NumberAvailable == pods && ds.Status.ObservedGeneration == ds.Generation
	}, 3*time.Minute, 100*time.Millisecond, "DaemonSet %s does not reach %d nodes", name, pods)
	t.Logf("DaemonSet %s available on %d nodes after %.2fs", name, pods, time.Since(begin).Seconds())
}

// One member of etcd lags, then the leader is cut off and another leads. It is not run beside other clusters: members that get no
// processor change their leader, too.
func TestEtcdMembers(t *testing.T) {
	needBinaries(t)
	// The second member takes the silence of the leader for none for a long time.
	ctx, c := startCluster(t, Options{APIServers: 2, EtcdMembers: 3, Etcd: ProcessOptions{Args: []string{"--election-timeout=2000"}}})
	require.Len(t, c.EtcdMembers(), 3)
	require.NoError(t, c.MoveEtcdLeader(ctx, 0))
	require.NoError(t, c.EtcdMembers()[1].Restart(ctx, func(o *ProcessOptions) { o.Args = append(o.Args, "--election-timeout=50000") }))
	first, second := kubernetes.NewForConfigOrDie(c.APIServers()[0].AdminConfig()), kubernetes.NewForConfigOrDie(c.APIServers()[1].AdminConfig())
	create := func(ctx context.Context, client kubernetes.Interface, name string) error {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	get := func(ctx context.Context, client kubernetes.Interface, name string) error {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return err
	}
	require.NoError(t, create(ctx, second, "before"))
	require.NoError(t, get(ctx, first, "before"))

	c.EtcdPeers().HoldTo(1)
	require.NoError(t, create(ctx, first, "unseen"))
	old, err := second.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	require.NoError(t, err)
	for _, m := range old.Items {
		require.NotEqual(t, "unseen", m.Name, "its watch cache lags")
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	require.ErrorIs(t, get(short, second, "unseen"), context.DeadlineExceeded, "a consistent read waits")
	require.Positive(t, c.EtcdPeers().Held())
	c.EtcdPeers().Release()
	require.NoError(t, get(ctx, second, "unseen"))

	require.NoError(t, c.EtcdMembers()[1].Restart(ctx, func(o *ProcessOptions) { o.Args = o.Args[:1] }))
	// A client that gives up before the leader has sent the write to another member has made none: that is up to the machine.
	const tries = 5
	for try := 1; ; try++ {
		require.LessOrEqual(t, try, tries, "no write reached another member")
		require.NoError(t, c.MoveEtcdLeader(ctx, 1))
		c.EtcdPeers().HoldTo(1)
		name := fmt.Sprint("unanswered-", try)
		short, cancel := context.WithTimeout(ctx, time.Second)
		require.Error(t, create(short, second, name), "the leader does not learn that it is committed")
		cancel()
		var err error
		require.Eventually(t, func() bool { err = get(ctx, first, name); return err == nil || apierrors.IsNotFound(err) }, 3*time.Minute, 50*time.Millisecond, "there is another leader")
		c.EtcdPeers().Release()
		if err == nil {
			require.Eventually(t, func() bool { return get(ctx, second, name) == nil }, 3*time.Minute, 50*time.Millisecond, "it is committed by the next leader")
			break
		}
		t.Logf("%s did not reach another member", name)
	}
}

func TestCluster(t *testing.T) {
	t.Parallel()
	needBinaries(t, ArmU1)
	const nodes = 50
	ctx, c := startCluster(t, Options{
		APIServers: 2,
		Nodes:      NodeOptions{Count: nodes, Zones: []string{"zone-a", "zone-b"}},
		KCMs:       []KCMOptions{{Arm: ArmU1}},
	})
	client := kubernetes.NewForConfigOrDie(c.AdminConfig())
	kcm := c.KCMs()[0]

	for _, s := range c.Components(ctx) {
		t.Logf("%-26s pid %-7d %-8s %s", s.Name, s.PID, s.State, s.Version)
		require.Equal(t, StateRunning, s.State, s.Name)
		require.NotEmpty(t, s.Version, s.Name)
	}

	createDaemonSet(ctx, t, client, "first", nodes)

	t.Run("pages of the KCM", func(t *testing.T) {
		for path, want := range map[string]string{
			"/healthz": "ok",
			"/metrics": "kubernetes_feature_enabled",
			"/configz": "LeaderElection",
			"/flagz":   "use-service-account-credentials",
			"/statusz": "1.37",
		} {
			body, err := kcm.Get(ctx, path)
			require.NoError(t, err, path)
			require.Contains(t, string(body), want, path)
		}
		_, err := kcm.Get(ctx, "/nothing")
		require.ErrorContains(t, err, "404")
	})

	t.Run("audit", func(t *testing.T) {
		creates, fromKwok := 0, 0
		for _, s := range c.APIServers() {
			_, err := ReadAudit(s.AuditLogPath(), 0, func(e AuditEvent) {
				if e.ServiceAccount() == "daemon-set-controller" && e.Verb == "create" && e.ObjectRef.Resource == "pods" && e.ResponseStatus.Code == 201 {
					creates++
				}
				if e.User.Username == kwokUser {
					fromKwok++
				}
			})
			require.NoError(t, err)
		}
		require.Equal(t, nodes, creates)
		require.Zero(t, fromKwok)
	})

	t.Run("a paused apiserver is silent, the other goes on", func(t *testing.T) {
		lagging := c.APIServers()[1]
		require.NoError(t, lagging.Pause())
		require.Equal(t, StatePaused, lagging.State())
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := kubernetes.NewForConfigOrDie(lagging.AdminConfig()).CoreV1().Nodes().Get(short, "node-0000", metav1.GetOptions{})
		require.Error(t, err)
		_, err = client.CoreV1().Nodes().Get(ctx, "node-0000", metav1.GetOptions{})
		require.NoError(t, err)
		require.NoError(t, lagging.Resume())
		_, err = kubernetes.NewForConfigOrDie(lagging.AdminConfig()).CoreV1().Nodes().Get(ctx, "node-0000", metav1.GetOptions{})
		require.NoError(t, err)
	})

	t.Run("a killed KCM comes back with other gates", func(t *testing.T) {
		pid := kcm.PID()
		require.NoError(t, kcm.Kill())
		require.ErrorContains(t, kcm.Wait(ctx), "killed")
		require.Zero(t, kcm.PID())
		require.NoError(t, kcm.Restart(ctx, func(o *ProcessOptions) {
			o.FeatureGates = map[string]bool{"StaleControllerConsistencyJob": false}
			o.Args = []string{"--concurrent-daemonset-syncs=3"}
		}))
		require.NotEqual(t, pid, kcm.PID())
		metrics, err := kcm.Get(ctx, "/metrics")
		require.NoError(t, err)
		require.Contains(t, string(metrics), `kubernetes_feature_enabled{name="StaleControllerConsistencyJob",stage="BETA"} 0`)
		flags, err := kcm.Get(ctx, "/flagz")
		require.NoError(t, err)
		require.Regexp(t, `concurrent-daemonset-syncs\W+3\n`, string(flags)) // the separator is random on purpose
		createDaemonSet(ctx, t, client, "second", nodes)
	})

	t.Run("the apiserver restarts on its address", func(t *testing.T) {
		first := c.APIServers()[0]
		url := first.URL()
		require.NoError(t, first.Kill())
		require.NoError(t, first.Restart(ctx))
		require.Equal(t, url, first.URL())
		createDaemonSet(ctx, t, client, "third", nodes)
	})

	t.Run("an exit by itself is a failure that is told", func(t *testing.T) {
		require.NoError(t, syscall.Kill(c.Scheduler().PID(), syscall.SIGKILL))
		require.Error(t, c.Scheduler().Wait(ctx))
		require.Eventually(t, func() bool { return c.Scheduler().State() == StateFailed }, time.Minute, 10*time.Millisecond)
		err := c.Scheduler().Pause()
		require.ErrorContains(t, err, "not running")

		err = c.Scheduler().Restart(ctx, func(o *ProcessOptions) { o.Args = []string{"--no-such-flag"} })
		var failure *ComponentError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, kubeScheduler, failure.Component)
		require.Contains(t, failure.Exit, "exit status 1")
		require.Contains(t, strings.Join(failure.LogTail, "\n"), "unknown flag: --no-such-flag")

		taken, err := net.Listen("tcp", c.Scheduler().ports[0].addr())
		require.NoError(t, err)
		err = c.Scheduler().Restart(ctx, func(o *ProcessOptions) { o.Args = nil })
		require.ErrorIs(t, err, ErrAddressInUse)
		first, _, _ := strings.Cut(err.Error(), "\n")
		require.Contains(t, first, taken.Addr().String())
		require.NoError(t, taken.Close())
		require.NoError(t, c.Scheduler().Restart(ctx))
	})
}

func TestNodesDieAndRevive(t *testing.T) {
	t.Parallel()
	needBinaries(t, ArmU1)
	ctx, c := startCluster(t, Options{
		Nodes:             NodeOptions{Count: 10},
		NodeLeaseDuration: 4 * time.Second,
		KCMs: []KCMOptions{{Arm: ArmU1, ProcessOptions: ProcessOptions{Args: []string{
			"--node-monitor-grace-period=6s", "--node-monitor-period=1s"}}}},
	})
	client := kubernetes.NewForConfigOrDie(c.AdminConfig())
	createDaemonSet(ctx, t, client, "all", 10)
	names := c.Nodes().Names()
	dead, alive := names[:3], names[3:]

	begin := time.Now()
	require.NoError(t, c.Nodes().Kill(ctx, dead...))
	require.NoError(t, c.Nodes().WaitUnknown(ctx, dead...))
	t.Logf("3 dead nodes Unknown after %.1fs", time.Since(begin).Seconds())
	require.NoError(t, c.Nodes().WaitReady(ctx, alive...))

	// A pod on a dead node can be deleted in name only.
	pods, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + dead[0]})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	require.NoError(t, client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{}))

	begin = time.Now()
	require.NoError(t, c.Nodes().KillAll())
	require.NoError(t, c.Nodes().WaitUnknown(ctx, names...))
	t.Logf("all nodes Unknown after %.1fs", time.Since(begin).Seconds())

	pod, err := client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pods.Items[0].Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, pod.DeletionTimestamp)

	begin = time.Now()
	require.NoError(t, c.Nodes().ReviveAll())
	require.NoError(t, c.Nodes().WaitReady(ctx, alive...))
	t.Logf("the others Ready after %.1fs", time.Since(begin).Seconds())
	require.NoError(t, c.Nodes().Revive(ctx, dead...))
	require.NoError(t, c.Nodes().WaitReady(ctx, names...))
	require.Eventually(t, func() bool {
		ds, err := client.AppsV1().DaemonSets(metav1.NamespaceDefault).Get(ctx, "all", metav1.GetOptions{})
		pod, podErr := client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pods.Items[0].Name, metav1.GetOptions{})
		return err == nil && ds.Status.NumberAvailable == 10 && (podErr != nil || pod.DeletionTimestamp == nil)
	}, 3*time.Minute, 100*time.Millisecond)
}

func TestLeaderHandoverAndRewind(t *testing.T) {
	t.Parallel()
	needBinaries(t, ArmU0, ArmU1)
	ctx, c := startCluster(t, Options{Nodes: NodeOptions{Count: 5}, KCMs: []KCMOptions{{Arm: ArmU0}}})
	client := kubernetes.NewForConfigOrDie(c.AdminConfig())
	// On a busy machine the apiserver takes longer to start than a leader keeps trying by default.
	patient := ProcessOptions{Args: []string{"--leader-elect-lease-duration=150s", "--leader-elect-renew-deadline=140s"}}
	standby, err := c.StartKCM(ctx, KCMOptions{Arm: ArmU1, Server: c.APIServers()[0].URL(), NoWaitForLeader: true, ProcessOptions: patient})
	require.NoError(t, err)
	leads, err := standby.IsLeader(ctx)
	require.NoError(t, err)
	require.False(t, leads)
	require.NoError(t, c.KCMs()[0].Stop())
	require.NoError(t, standby.WaitForLeader(ctx))

	createDaemonSet(ctx, t, client, "before", 5)
	backup := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, c.WithEtcdStopped(ctx, func(data string) error { return os.CopyFS(backup, os.DirFS(data)) }))
	createDaemonSet(ctx, t, client, "after", 5)
	before, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	require.NoError(t, err)

	require.NoError(t, c.WithEtcdStopped(ctx, func(data string) error {
		if err := os.RemoveAll(data); err != nil {
			return err
		}
		return os.CopyFS(data, os.DirFS(backup))
	}))
	rewound, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	require.NoError(t, err)
	order, err := resourceversion.CompareResourceVersion(rewound.ResourceVersion, before.ResourceVersion)
	require.NoError(t, err)
	require.Negative(t, order)
	t.Logf("resource version %s, after the rewind %s", before.ResourceVersion, rewound.ResourceVersion)
	_, err = client.AppsV1().DaemonSets(metav1.NamespaceDefault).Get(ctx, "after", metav1.GetOptions{})
	require.ErrorContains(t, err, "not found")
}
