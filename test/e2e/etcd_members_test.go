// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	// ownMember is the member of etcd whose apiserver the KCM is a client of, otherMember that of all others.
	ownMember, otherMember = 1, 0
	// readPatience is how long a consistent read through a member that lags is given, which it does not answer.
	readPatience = 2 * time.Second
	// quorumGone is how long most members of etcd are away.
	quorumGone = 20 * time.Second

	ruleStaleRead = "consistent read shows the past"
)

// etcdOfThree is a control plane with three members of etcd. Leaders are given up after 3 s, so that what is under way when the others
// fall silent has come to the leader by then.
func etcdOfThree(nodes int) rig.Options {
	return rig.Options{
		KCMArgs: append([]string{"--node-monitor-grace-period=5m"}, patientElection...),
		Cluster: controlplane.Options{APIServers: 2, EtcdMembers: 3, Nodes: controlplane.NodeOptions{Count: nodes},
			Etcd: controlplane.ProcessOptions{Args: []string{"--election-timeout=3000"}}},
	}
}

// A follower of etcd hears nothing of the others for a while and does not notice it. Its apiserver, which the KCM is a client of, goes
// on to serve what it has: watches bring nothing, lists from its cache show the past, and consistent reads wait. A NoExecute taint is
// taken off meanwhile. When the toleration has run out every stock arm begins to evict by its cache: the writes reach the leader, and are
// carried out. P asks the server, which does not answer before the member has caught up.
var _ = describe(scenario{
	number: 50, title: "a member of etcd lags: NoExecute taint taken off before the toleration runs out", label: long,
	hurts: rig.U1, rules: []string{oracle.RuleUnjustified}, mutants: []without{{"taint-guard", oracle.RuleUnjustified}},
	options: etcdOfThree(1), idle: true,
	timeout: 6 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.judges = append(r.judges, oracle.TaintEvictions)
		server := r.atOwnMember(ctx)
		gomega.Expect(r.Cluster.EtcdMembers()[ownMember].Restart(ctx, func(o *controlplane.ProcessOptions) {
			o.Args = append(o.Args, "--election-timeout=50000") // The longest that etcd takes.
		})).To(gomega.Succeed())
		gomega.Expect(r.Cluster.MoveEtcdLeader(ctx, otherMember)).To(gomega.Succeed())
		behind, err := kubernetes.NewForConfig(server.AdminConfig())
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		node, due := r.taintVictims(ctx)

		peers := r.Cluster.EtcdPeers()
		peers.HoldTo(ownMember)
		r.untaintBefore(ctx, node, due)
		now := r.lastRV(truth.Nodes, func(truth.Event) bool { return true })
		short, cancel := context.WithTimeout(ctx, readPatience)
		defer cancel()
		if read, err := behind.CoreV1().Nodes().Get(short, node, metav1.GetOptions{}); err == nil && len(read.Spec.Taints) > 0 {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleStaleRead, Object: node, Time: time.Now(), Detail: "it has the taint"})
		}
		r.passes(ctx, "the toleration to run out", due, taintedWindow)
		old, err := behind.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		told, err := r.Told(truth.Nodes, now)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.figure("V held between members, cache of the apiserver at, truth at", "%d pieces, %s, %s", peers.Held(), old.ResourceVersion, now)
		if peers.Held() == 0 || len(old.Items) != 1 || len(old.Items[0].Spec.Taints) == 0 || told {
			r.unproven = append(r.unproven, "the member of etcd does not lag")
		}
		r.putsEvictionsOff(ctx)
		peers.Release()
		r.told(ctx, truth.Nodes)

		r.figure("pods deleted", "%d of %d", r.evicted("victim"), taintedPods)
		r.evictsLater(ctx, node)
	},
})

// The leader of etcd is cut off while pods are created through it: the others have been sent the creations, and cannot say so. They
// make another one of them the leader, and the creations are committed. Their client learns that the requests timed out. When the old
// leader has learned of the new one, stock sends them again, as long as its cache does not have the pods: they are held for a while.
var _ = describe(scenario{
	number: 51, title: "leader of etcd cut off while pods are created", label: long,
	hurts: rig.U1, rules: []string{ruleDigest}, mutants: []without{{"lost-answers", ruleDigest}},
	allows:  []string{oracle.RuleTooLate}, // What arrives without etcd is made when it is back.
	options: etcdOfThree(heldOwners), idle: true,
	timeout: 6 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.atOwnMember(ctx)
		peers := r.Cluster.EtcdPeers()
		c := r.createUnanswered(ctx, func() { peers.HoldTo(ownMember) })
		r.eventually(ctx, "the next leader to commit the creations", func() (bool, error) { return len(podsMade(r, c.owners, 0)) == len(c.owners), nil })
		r.figure("V held between members", "%d pieces", peers.Held())
		r.triesAgain(ctx, c, peers.Release)
		r.endsWithPods(ctx, c.owners, 1)
		r.committedUnanswered(c)
	},
})

// Two of three members of etcd are gone for 20 s. Pods that are created right after that are in the leader's log, and nowhere else. Their
// client learns that the requests timed out. The leader comes to be one again when another member is back, and the creations
// are committed, long after their client was told that they were not. What stock does then is as above.
var _ = describe(scenario{
	number: 51, title: "quorum of etcd lost while pods are created, and regained", label: long,
	hurts: rig.U1, rules: []string{ruleDigest}, mutants: []without{{"lost-answers", ruleDigest}},
	allows:  []string{oracle.RuleTooLate}, // What arrives without etcd is made when it is back.
	options: etcdOfThree(heldOwners), idle: true,
	timeout: 6 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.atOwnMember(ctx)
		members := r.Cluster.EtcdMembers()
		var gone time.Time
		c := r.createUnanswered(ctx, func() {
			gone = time.Now()
			gomega.Expect(members[otherMember].Kill()).To(gomega.Succeed())
			gomega.Expect(members[2].Kill()).To(gomega.Succeed())
		})
		r.passes(ctx, "a time without quorum", gone, quorumGone)
		r.triesAgain(ctx, c, func() {
			// One alone, which has less in its log than the leader of before and cannot become it.
			gomega.Expect(members[otherMember].Restart(ctx)).To(gomega.Succeed())
			r.figure("V without quorum for", "%v", rounded(time.Since(gone)))
		})
		gomega.Expect(members[2].Restart(ctx)).To(gomega.Succeed())
		r.endsWithPods(ctx, c.owners, 1)
		r.committedUnanswered(c)
	},
})

// putsEvictionsOff notes that P has evictions wait, and says why, once its first reads have got no answer.
func (r *run) putsEvictionsOff(ctx context.Context) {
	ginkgo.GinkgoHelper()
	if r.Arm != rig.P {
		return
	}
	why := "nothing"
	_ = rig.Wait(ctx, stepLimit, "evictions to be put off", func() (bool, error) {
		for _, w := range readStalenessz(ctx, r).Waits {
			if w.Controller == "tainteviction" {
				why = fmt.Sprintf("%s: %s", w.For, w.Why)
				return true, nil
			}
		}
		return false, nil
	})
	n := series(ctx, r, "stale_controller_waiting_evictions")
	r.figure("evictions put off", "%.0f, for %s", n, why)
	if n == 0 || why == "nothing" {
		r.unwaited = append(r.unwaited, "no eviction was put off, or nothing says why")
	}
}

// atOwnMember has the KCM be a client of an apiserver of its own, at a member of etcd of its own, which then leads. All others are clients
// of an apiserver without watch cache, on which the truth can be resumed after a time without etcd.
func (r *run) atOwnMember(ctx context.Context) *controlplane.APIServer {
	ginkgo.GinkgoHelper()
	servers := r.Cluster.APIServers()
	gomega.Expect(r.Proxy.SwitchBackend(servers[ownMember].Name(), faultproxy.EndWatches)).To(gomega.Succeed())
	gomega.Expect(servers[otherMember].Restart(ctx, func(o *controlplane.ProcessOptions) { o.Args = append(o.Args, "--watch-cache=false") })).To(gomega.Succeed())
	gomega.Expect(r.Cluster.MoveEtcdLeader(ctx, ownMember)).To(gomega.Succeed())
	return servers[ownMember]
}

// creations are those of the pods of some owners, one each, by the KCM.
type creations struct {
	owners map[types.UID]string
	since  time.Time
	tries  atomic.Int64 // how many were sent
}

// createUnanswered makes owners, each of one pod, which the KCM is told of when etcd has been cut, and waits until it has sent the creations.
func (r *run) createUnanswered(ctx context.Context, cut func()) *creations {
	ginkgo.GinkgoHelper()
	// A controller's first request needs a token, which cannot be had without etcd.
	for _, kind := range []ownerKind{replicaSets, replicationControllers} {
		warm, err := kind.create(ctx, r, "warm-"+kind.short)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.eventually(ctx, "a first pod", func() (bool, error) { return len(podsMade(r, map[types.UID]string{warm.GetUID(): ""}, 0)) == 1, nil })
	}
	c := &creations{since: time.Now()}
	_, err := r.Proxy.Inject(faultproxy.Target{Resource: truth.Pods, Match: func(q faultproxy.Request) bool {
		if q.Verb == "create" {
			c.tries.Add(1)
		}
		return false
	}}, faultproxy.Hold{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	kinds := map[schema.GroupResource]ownerKind{truth.ReplicaSets: replicaSets, {Resource: "replicationcontrollers"}: replicationControllers}
	var holds []*faultproxy.Fault
	for resource := range kinds {
		holds = append(holds, r.inject(faultproxy.Target{Resource: resource}, faultproxy.Hold{}))
	}
	c.owners = createOfEach(ctx, r, replicaSets, replicationControllers)
	for resource := range kinds {
		last := uint64(0)
		for _, object := range r.ownersOf(ctx, resource) {
			rv, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			last = max(last, rv)
		}
		r.eventually(ctx, "the apiserver to have told of the owners", func() (bool, error) { return r.Sent(resource, strconv.FormatUint(last, 10)) })
	}
	cut()
	for _, hold := range holds {
		r.proves(hold, ofEachKind, 0)
		hold.Clear()
	}
	r.eventually(ctx, "the creations to be sent", func() (bool, error) { return c.tries.Load() >= int64(len(c.owners)), nil })
	return c
}

// ownersOf lists the objects of a resource in the namespace default.
func (r *run) ownersOf(ctx context.Context, resource schema.GroupResource) []metav1.PartialObjectMetadata {
	ginkgo.GinkgoHelper()
	client, err := metadata.NewForConfig(r.Cluster.AdminConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	list, err := client.Resource(resource.WithVersion("v1")).Namespace(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return list.Items
}

// triesAgain heals etcd once the KCM was told that the creations have failed, and gives it time to send them again while what is
// known of pods is held. P waits, and says why.
func (r *run) triesAgain(ctx context.Context, c *creations, heal func()) {
	ginkgo.GinkgoHelper()
	r.eventually(ctx, "the creations to be answered", func() (bool, error) {
		answers, err := r.answers(c)
		return answers[false] >= len(c.owners), err
	})
	hold := r.inject(faultproxy.Target{Resource: truth.Pods}, faultproxy.Hold{Lists: true})
	heal()
	healed := time.Now()
	r.eventually(ctx, "creations to be sent again, or a while without", func() (bool, error) {
		return c.tries.Load() >= int64(2*len(c.owners)) || time.Since(healed) >= heldFor, nil
	})
	r.figure("creations sent", "%d of %d pods", c.tries.Load(), len(c.owners))
	if r.Arm == rig.P {
		waiting := series(ctx, r, "stale_controller_parked_owners", `reason="unsettled_write"`)
		why := ""
		for _, w := range readStalenessz(ctx, r).Waits {
			if w.For == "the outcome of a write whose answer was lost" {
				why = w.Why
			}
		}
		r.figure("owners that wait", "%.0f, as %s", waiting, why)
		if waiting == 0 || why == "" {
			r.unwaited = append(r.unwaited, "no owner waits for the outcome of a write, or nothing says why")
		}
	}
	r.proves(hold, 1, 0)
	hold.Clear()
}

// answers counts the creations that the apiservers have answered, by whether the pods were said to be made.
func (r *run) answers(c *creations) (map[bool]int, error) {
	events, err := r.Audit()
	count := map[bool]int{}
	for i := range events {
		e := &events[i]
		if e.Stage == "ResponseComplete" && e.Verb == "create" && e.ObjectRef.Resource == "pods" && e.ObjectRef.Subresource == "" &&
			strings.HasPrefix(e.UserAgent, r.UserAgent()) && e.RequestReceivedTimestamp.After(c.since) {
			count[e.ResponseStatus.Code < 300]++
		}
	}
	return count, err
}

// committedUnanswered is V: more pods were made than creations were said to have been carried out.
func (r *run) committedUnanswered(c *creations) {
	ginkgo.GinkgoHelper()
	answers, err := r.answers(c)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	made := 0
	for _, events := range podsMade(r, c.owners, 0) {
		made += len(events)
	}
	r.figure("V pods made, creations answered with success, with failure", "%d, %d, %d", made, answers[true], answers[false])
	if made <= answers[true] {
		r.unproven = append(r.unproven, "no creation was carried out whose client was told that it failed")
	}
}
