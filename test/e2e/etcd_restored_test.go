// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	restoreNodes = 20
	// Of the nodes, so many run the DaemonSet before the snapshot, so many more after it, and so many others
	// after the restore.
	nodesBefore, nodesLost, nodesAfter = 10, 5, 3
	// restoreDistance is how many resource versions the restore goes back at least. What happens afterwards
	// must not make up for it within the run.
	restoreDistance = 4000
	// restoreBound is how long a DaemonSet with a write in flight may take to its end state after the restore.
	restoreBound = time.Minute
	// relistBound is how long a cache may take to be filled anew: its reflector waits for up to a minute between two attempts.
	relistBound = 2 * time.Minute
	// expectationsTimeout is upstream's: what a controller created and will never see blocks it so long, with
	// every gate off, too.
	expectationsTimeout = 5 * time.Minute
)

// Etcd comes back from a snapshot while the DaemonSet controller waits for one of its writes, which is lost.
// U1 waits until the old resource version is passed again, which here takes longer than the run (gap 5).
//
// With --bump-revision nothing goes backward, but every watch is told 410 and each informer lists anew on its
// own. As long as that of the nodes has not, stock creates pods for nodes that had the label only before the
// restore, and deletes them again. When all list anew at about the same time, U1 is seldom hurt. U0, which waits
// for nothing, is not hurt by the first variant either, but like the others by the second: it has upstream's
// expectations.
//
// In these four the KCM's watches are listed anew, because an apiserver that is down looks like 503 to it, as
// behind a load balancer. In the last one connections are refused, as where it talks to the apiserver on its
// own host. Then client-go resumes its watches where they were, which is in the server's future: no event is
// told until that resource version is passed. No arm of stock upstream notices; U0 marks every live node
// Unknown, because its leases stand still. P proves the rewind and has all its informers list anew.
var (
	_ = describe(restored(restoration{
		title: "a status write in flight", hurts: rig.U1, label: ordinary, mutants: []without{{"rewind", ruleEnd}},
		inFlight: truth.DaemonSets, bound: restoreBound,
	}))
	_ = describe(restored(restoration{
		title: "pod creations in flight", hurts: rig.U1, label: long,
		inFlight: truth.Pods, bound: expectationsTimeout + restoreBound,
	}))
	_ = describe(restored(restoration{
		title: "a status write in flight, revisions bumped", label: long,
		inFlight: truth.DaemonSets, bound: restoreBound, args: bumped,
	}))
	_ = describe(restored(restoration{
		title: "revisions bumped, the nodes relisted last", hurts: rig.U1, label: ordinary,
		inFlight: truth.DaemonSets, bound: 3 * restoreBound, args: bumped, nodesLast: true,
		mutants: []without{{"relist-proof", ruleDigest}},
	}))
	_ = describe(restored(restoration{
		title: "connections refused meanwhile", hurts: rig.U1, label: ordinary, mutants: []without{{"relist", ruleEnd}},
		inFlight: truth.DaemonSets, bound: restoreBound, refuse: true,
	}))
)

type restoration struct {
	title, label string
	hurts        rig.Arm
	mutants      []without
	// inFlight is the resource whose watch does not tell of the controller's last write.
	inFlight schema.GroupResource
	bound    time.Duration
	args     []string // to etcdutl
	refuse   bool     // connections while there is no apiserver
	// nodesLast has the watch of the nodes held until the DaemonSet was to be reconciled on the others.
	nodesLast bool
}

// bumped has the revisions of a restored etcd begin above those before.
var bumped = []string{"--bump-revision=1000000000", "--mark-compacted"}

func restored(o restoration) scenario {
	var gaps []int
	if len(o.args) == 0 {
		gaps = []int{5} // versions that go backward
	}
	return scenario{
		number: 23, title: "etcd restored from a snapshot, " + o.title, label: o.label,
		incidents: []string{"95958", "107457", "118501"},
		hurts:     o.hurts, rules: []string{ruleEnd, ruleDigest}, mutants: o.mutants, gaps: gaps,
		options: restoreOptions(),
		timeout: 5*time.Minute + o.bound,
		run:     func(ctx context.Context, r *run) { restore(ctx, r, o) },
	}
}

func restoreOptions() rig.Options {
	return rig.Options{
		// A restore may take longer than the 10 s after which a leader that cannot renew its lease ends.
		KCMArgs: []string{"--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s"},
		Cluster: controlplane.Options{
			Nodes: controlplane.NodeOptions{Count: restoreNodes},
			// kwok takes its nodes over again when their leases have run out.
			NodeLeaseDuration: 8 * time.Second,
		},
	}
}

func restore(ctx context.Context, r *run, o restoration) {
	nodes := r.Cluster.Nodes().Names()
	addLabel(ctx, r, nodes[:nodesBefore]...)
	set := create(ctx, r, workload.DaemonSet("restored", onLabelled))
	r.converges(ctx, "before the snapshot", patience, r.daemonSetDone(set, nodesBefore))
	snapshot := filepath.Join(r.Cluster.Dir(), "data", "snapshot.db")
	gomega.Expect(r.Cluster.SnapshotEtcd(ctx, snapshot)).To(gomega.Succeed())
	taken := liveRV(ctx, r)

	fillRVs(ctx, r, restoreDistance)
	fault := r.inject(faultproxy.Target{Resource: o.inFlight, Running: true}, faultproxy.DropStream{})
	addLabel(ctx, r, nodes[nodesBefore:nodesBefore+nodesLost]...)
	r.eventually(ctx, "writes in flight", func() (bool, error) {
		ds := r.Truth.At(truth.DaemonSets, truth.Latest)[set].Object.(*appsv1.DaemonSet)
		// An arm that waits for its own writes stops here after the first.
		return ds.Status.DesiredNumberScheduled > nodesBefore && oracle.DigestOf(r.Truth, set).PodsCreated > nodesBefore, nil
	})
	if r.Arm == rig.P {
		r.eventually(ctx, "the DaemonSet to be parked", func() (bool, error) {
			return series(ctx, r, "stale_controller_parked_owners", `controller="daemonset"`, `reason="own_writes"`) == 1, nil
		})
	}
	gomega.Expect(r.Truth.Sync(ctx)).To(gomega.Succeed())
	r.violate(oracle.Surplus(r.Truth)...)
	left := liveRV(ctx, r)
	lost := oracle.DigestOf(r.Truth, set).PodsCreated - nodesBefore
	r.figure("pods lost by the restore", "%d", lost)

	nodesHeld := func() {}
	if o.nodesLast {
		hold := r.inject(faultproxy.Target{Resource: truth.Nodes, Match: func(q faultproxy.Request) bool { return q.Verb == "watch" }}, faultproxy.Hold{})
		nodesHeld = func() {
			r.reconciledAnew(ctx, set, left)
			hold.Clear()
			// Nodes have not changed: what is kept back is the end of their watch, at which they would be relisted.
			held := hold.Stats().Held.Frames
			r.figure("V ends of the nodes' watch held", "%d", held)
			if held == 0 {
				r.unproven = append(r.unproven, "no end of the nodes' watch was held")
			}
		}
	}
	if o.refuse {
		refused := r.Proxy.Refuse()
		defer refused.Clear()
		gomega.Expect(r.Cluster.RestoreEtcd(ctx, snapshot, o.args...)).To(gomega.Succeed())
		refused.Clear()
	} else {
		gomega.Expect(r.Cluster.RestoreEtcd(ctx, snapshot, o.args...)).To(gomega.Succeed())
	}
	at := time.Now()
	came := liveRV(ctx, r)
	r.figure("RV at snapshot, before and after restore", "%d, %d, %d", taken, left, came)
	if len(o.args) == 0 && came+restoreDistance/2 > left {
		r.unproven = append(r.unproven, fmt.Sprintf("resource versions went from %d to %d", left, came))
	}
	fault.Clear()
	r.figure("V "+fault.Stats().Effect+" "+o.inFlight.Resource, "%d streams", fault.Stats().Streams)
	if fault.Stats().Streams == 0 {
		r.unproven = append(r.unproven, "no watch of "+o.inFlight.Resource+" was dropped")
	}
	r.restartOthers(ctx)

	addLabel(ctx, r, nodes[nodesBefore+nodesLost:nodesBefore+nodesLost+nodesAfter]...)
	nodesHeld()
	want := nodesBefore + nodesAfter
	took := r.converges(ctx, "after the restore", o.bound-time.Since(at), r.daemonSetDone(set, want))
	r.figure("L after", "%.1fs", took.Seconds())
	got := oracle.DigestOf(r.Truth, set)
	r.figure("pods created after the restore", "%d", got.PodsCreated)
	if len(oracle.Of(r.violations, "L")) == 0 {
		r.digest("after the restore", set, oracle.Digest{PodsCreated: nodesAfter})
	}
	if end := liveRV(ctx, r); len(o.args) == 0 && end >= left {
		r.unproven = append(r.unproven, fmt.Sprintf("resource version %d was passed again, now %d", left, end))
	}
	r.rewindSeen(ctx, len(o.args) == 0)
}

// reconciledAnew waits until the caches of pods and DaemonSets were filled anew, past a resource version,
// and the DaemonSet was reconciled since, or is held from it.
func (r *run) reconciledAnew(ctx context.Context, set types.UID, left int64) {
	ginkgo.GinkgoHelper()
	r.filledAnew(ctx, truth.Pods, left)
	r.filledAnew(ctx, truth.DaemonSets, left)
	ds := r.Truth.At(truth.DaemonSets, truth.Latest)[set].Object.(*appsv1.DaemonSet)
	edited, err := r.Client.AppsV1().DaemonSets(ds.Namespace).Patch(ctx, ds.Name, types.MergePatchType,
		[]byte(`{"spec":{"revisionHistoryLimit":5}}`), metav1.PatchOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(rig.Wait(ctx, restoreBound, "the DaemonSet to be reconciled, or held from it", func() (bool, error) {
		if r.Arm == rig.P && series(ctx, r, "stale_controller_parked_owners", `controller="daemonset"`) == 1 &&
			series(ctx, r, "stale_controller_relist_proofs_total", `resource="nodes"`, `outcome="Stale"`) > 0 {
			return true, nil
		}
		ds := r.Truth.At(truth.DaemonSets, truth.Latest)[set].Object.(*appsv1.DaemonSet)
		return ds.Status.ObservedGeneration == edited.Generation, nil
	})).To(gomega.Succeed())
}

// filledAnew waits until a cache of the kube-controller-manager was filled anew since a restore. That shows when its watch brings a
// resource version past the one that was left. After a WatchList that is its first bookmark. After a list it is the next event, so an
// object is changed, once a second.
func (r *run) filledAnew(ctx context.Context, resource schema.GroupResource, left int64) {
	ginkgo.GinkgoHelper()
	client, err := dynamic.NewForConfig(r.Cluster.AdminConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	objects := client.Resource(resource.WithVersion("v1")).Namespace(metav1.NamespaceDefault)
	var touched time.Time
	gomega.Expect(rig.Wait(ctx, relistBound, resource.Resource+" to be relisted", func() (bool, error) {
		if told, err := r.Told(resource, strconv.FormatInt(left+1, 10)); told || err != nil || time.Since(touched) < time.Second {
			return told, err
		}
		touched = time.Now()
		list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		_, err = objects.Patch(ctx, list.Items[0].GetName(), types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e.fresh-kcm.io/touched":%q}}}`, touched), metav1.PatchOptions{})
		return false, ignoreNotFound(err)
	})).To(gomega.Succeed())
}

const ruleRewind = "rewind not seen"

// rewindSeen asks arm P's metrics whether it noticed what happened.
func (r *run) rewindSeen(ctx context.Context, backward bool) {
	if r.Arm != rig.P {
		return
	}
	rewinds := series(ctx, r, "stale_controller_rewinds_total")
	regressions := series(ctx, r, "stale_controller_cache_regressions_total")
	r.figure("rewinds, cache regressions", "%v, %v", rewinds, regressions)
	r.figure("records dropped", "%v", series(ctx, r, "stale_controller_dropped_records_total"))
	r.figure("waits", "%v", series(ctx, r, "stale_controller_waits_total"))
	if seen := rewinds > 0; seen != backward {
		r.violate(oracle.Violation{Oracle: "L", Rule: ruleRewind, Object: "/metrics", Time: time.Now(),
			Detail: fmt.Sprintf("%v rewinds and %v regressions counted", rewinds, regressions)})
	}
}

// restartOthers begins a new record, and restarts the scheduler and kwok. They are no part of the question: a watch resumed from before the
// restore brings nothing until its resource version is passed.
func (r *run) restartOthers(ctx context.Context) {
	ginkgo.GinkgoHelper()
	r.restartTruth(ctx)
	gomega.Expect(r.Cluster.Scheduler().Restart(ctx)).To(gomega.Succeed())
	gomega.Expect(r.Cluster.Kwok().Restart(ctx)).To(gomega.Succeed())
}

// restartTruth begins a new record, of the world after a restore. The old one is judged by then.
func (r *run) restartTruth(ctx context.Context) {
	ginkgo.GinkgoHelper()
	r.Truth.Stop()
	recorder, err := truth.Record(ctx, r.Cluster.AdminConfig(), truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r.Truth = recorder
}

// nodeLabel chooses the nodes of the DaemonSets made with onLabelled.
const nodeLabel = "e2e.fresh-kcm.io/chosen"

func onLabelled(ds *appsv1.DaemonSet) {
	ds.Spec.Template.Spec.NodeSelector = map[string]string{nodeLabel: "true"}
}

func addLabel(ctx context.Context, r *run, nodes ...string) {
	ginkgo.GinkgoHelper()
	patchNodes(ctx, r, fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, nodeLabel), nodes...)
}

func patchNodes(ctx context.Context, r *run, patch string, nodes ...string) {
	ginkgo.GinkgoHelper()
	for _, node := range nodes {
		_, err := r.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
	}
}

// liveRV is etcd's revision, by a consistent read.
func liveRV(ctx context.Context, r *run) int64 {
	ginkgo.GinkgoHelper()
	list, err := r.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 1})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	rv, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return rv
}
