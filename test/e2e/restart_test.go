// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
	"github.com/fresh-kcm/fresh-kcm/test/lag"
)

const (
	burstNodes = 50
	// burstAt is how many pods are created when the KCM is killed or paused. Its client may send 30 requests
	// at once and 20 a second after that.
	burstAt = 35
	// lagFor is how long the new KCM has to do wrong before its apiserver catches up.
	lagFor = 15 * time.Second
)

// quickElection lets a successor lead 4 s after its predecessor died.
var quickElection = []string{
	"--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s",
}

// The KCM dies while it creates pods and comes back on an apiserver whose watch cache of pods stands still:
// write records are lost with a process, so nothing tells it what it did before (gap 17). Without WatchList
// its first list may be as old as that cache, and every stock arm creates the pods again.
var (
	_ = describe(restartedOnLagging(false, rig.U1, without{"start-proof", oracle.RuleSurplus}))
	_ = describe(restartedOnLagging(true, ""))
)

//conformance:kep-5647 Risks and Mitigations: after a restart a controller sees a consistent world: most wait until their caches are proven
func restartedOnLagging(watchList bool, hurts rig.Arm, mutants ...without) scenario {
	return scenario{
		number: 17, title: fmt.Sprintf("KCM restarts on a lagging apiserver, WatchListClient=%v", watchList), label: long,
		incidents: []string{"59848"},
		hurts:     hurts, rules: []string{oracle.RuleSurplus}, mutants: mutants, gaps: []int{17},
		options: rig.Options{KCMArgs: quickElection, Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: burstNodes}}},
		idle:    true, // The wait at the start is counted by itself: heldAtStart and waitedToStart ask for it.
		timeout: 4 * time.Minute,
		run: func(ctx context.Context, r *run) {
			_, proxy, lagging := r.behindLagging(ctx)

			lagging.Hold()
			set := create(ctx, r, workload.DaemonSet("burst"))
			r.eventually(ctx, "a burst of creations", func() (bool, error) {
				return oracle.DigestOf(r.Truth, set).PodsCreated >= burstAt, nil
			})
			gomega.Expect(r.KCM.Kill()).To(gomega.Succeed())
			r.figure("pods when killed", "%d", oracle.DigestOf(r.Truth, set).PodsCreated)
			r.startsAgain(ctx, proxy, watchList)
			began := time.Now()
			_ = rig.Wait(ctx, lagFor, "harm", func() (bool, error) { return len(oracle.Surplus(r.Truth)) >= burstAt, nil })
			r.figure("V etcd watch of pods held", "%d pieces, %.1fs after leading", lagging.Held(), time.Since(began).Seconds())
			if lagging.Held() == 0 {
				r.unproven = append(r.unproven, "nothing was held between etcd and the lagging apiserver")
			}
			r.asked(proxy, watchList)
			if !watchList { // Else the first list ends with the lag, and the controller has nothing to reconcile before.
				r.heldAtStart(ctx)
			}
			r.waitedToStart(ctx, truth.Pods, 0)
			lagging.Release()
			r.figure("L after", "%.1fs", r.converges(ctx, "burst", time.Minute, r.daemonSetDone(set, burstNodes)).Seconds())
			r.digest("burst", set, oracle.Digest{PodsCreated: burstNodes, RevisionsCreated: 1})
			r.waitedToStart(ctx, truth.Pods, 1)
		},
	}
}

// heldAtStart says whether P has the DaemonSet wait now, whatever for.
func (r *run) heldAtStart(ctx context.Context) {
	ginkgo.GinkgoHelper()
	if r.Arm != rig.P {
		return
	}
	n := series(ctx, r, "stale_controller_parked_owners", `controller="daemonset"`)
	r.figure("DaemonSets that wait at the start", "%.0f", n)
	if n == 0 {
		r.unwaited = append(r.unwaited, "no DaemonSet waits at the start")
	}
}

// behindLagging starts an apiserver that lags in pods once lagging holds, and a proxy that sends its clients there.
func (r *run) behindLagging(ctx context.Context) (server *controlplane.APIServer, proxy *faultproxy.Proxy, lagging *lag.Proxy) {
	ginkgo.GinkgoHelper()
	lagging = r.lagOfPods(func(arg string) (err error) {
		server, err = r.Cluster.StartAPIServer(ctx, controlplane.ProcessOptions{Args: []string{arg}})
		return err
	})
	proxy, err := r.StartProxy(ctx)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(proxy.Close)
	gomega.Expect(proxy.SwitchBackend(server.Name(), faultproxy.EndWatches)).To(gomega.Succeed())
	return server, proxy, lagging
}

// startsAgain starts a KCM behind the proxy, in place of the one that was killed.
func (r *run) startsAgain(ctx context.Context, proxy *faultproxy.Proxy, watchList bool, args ...string) {
	ginkgo.GinkgoHelper()
	successor, err := r.StartKCM(ctx, "kube-controller-manager-restarted", proxy, func(o *controlplane.KCMOptions) {
		o.Args = append(o.Args, args...)
		gates := maps.Clone(o.FeatureGates)
		if gates == nil {
			gates = map[string]bool{}
		}
		gates["WatchListClient"] = watchList
		o.FeatureGates = gates
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.Adopt(successor)
}

// asked is V: the new KCM got its pods from the lagging apiserver, in the way that the scenario is about.
func (r *run) asked(proxy *faultproxy.Proxy, watchList bool) {
	count := func(verb string) int64 {
		return proxy.Requests().Sum(func(k faultproxy.RequestKey) bool { return k.Resource == truth.Pods && k.Verb == verb })
	}
	r.figure("lists, watches of pods there", "%d, %d", count("list"), count("watch"))
	if !watchList && count("list") == 0 || watchList && count("watch") == 0 {
		r.unproven = append(r.unproven, "the new KCM did not ask the lagging apiserver for pods as it should")
	}
}

// lagOfPods starts a lag.Proxy and an apiserver whose watches of pods go to etcd through it, which takes one more
// argument for that.
func (r *run) lagOfPods(start func(arg string) error) *lag.Proxy {
	ginkgo.GinkgoHelper()
	proxy, err := lag.Start(r.Cluster.EtcdURL(), filepath.Join(r.Cluster.Dir(), "pki"))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(proxy.Close)
	gomega.Expect(start("--etcd-servers-overrides=/pods#" + proxy.URL())).To(gomega.Succeed())
	return proxy
}
