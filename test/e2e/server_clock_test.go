// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/clock"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	serverClockNodes = 20
	// serverOff is by how much the apiserver's clock is set.
	serverOff = 30 * time.Minute
	// startupGrace is upstream's for a node that has never reported.
	startupGrace = time.Minute
	// missedBy is how long before that a CronJob was due, which is made after it.
	missedBy = 10 * time.Minute
)

// oldNodes is on those that do not join later: kwok runs no pod on one that the test has made.
var oldNodes = map[string]string{"joined": "before"}

// The clock of the apiserver that the KCM is a client of is set, in the running process, and later set right. What rests on the time of an object's
// creation, and is harm on no arm, is only told: a CronJob runs at once for a time before it was made.
var (
	// The tokens of the service accounts are not valid yet by the clock of before; a node that joins meanwhile was made half an hour ago by it, and has
	// never reported. Every stock arm marks it at once.
	_ = describe(serverClock("set back by 30 min: a node joins", -serverOff, "first-probe", oracle.RuleLiveMarked))
	// The tokens of then are not valid yet once the clock is right. A node that joins was made half an hour from now, and where its kubelet never starts
	// stock marks it that much later.
	_ = describe(serverClock("set ahead by 30 min: a node joins, and one that never reports", serverOff, "first-probe", ruleUnmarked))
)

func serverClock(how string, ahead time.Duration, mutant, rule string) scenario {
	return scenario{
		number: 59, title: "clock of the apiserver " + how, label: long,
		hurts: rig.U1, rules: []string{rule}, mutants: []without{{mutant, rule}}, idle: true,
		options: func() rig.Options {
			o := shortTiming.rig(controlplane.NodeOptions{Count: serverClockNodes, Labels: oldNodes})
			o.Cluster.APIServers = 2
			return o
		}(),
		timeout: 5 * time.Minute,
		run: func(ctx context.Context, r *run) {
			if err := clock.Supported(); err != nil {
				ginkgo.Skip(err.Error())
			}
			// The first one is left to all others.
			server := r.Cluster.APIServers()[1]
			gomega.Expect(r.Proxy.SwitchBackend(server.Name(), faultproxy.EndWatches)).To(gomega.Succeed())
			client, err := kubernetes.NewForConfig(server.AdminConfig())
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			r.nodesKnown(ctx)

			gomega.Expect(r.SetClock(server, ahead)).To(gomega.Succeed())
			began := time.Now()
			joined := r.joinSilent(ctx, client, "late-kubelet")
			node, err := client.CoreV1().Nodes().Get(ctx, joined, metav1.GetOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			r.figure("V the node was made", "%v before it was by all other clocks", rounded(began.Sub(node.CreationTimestamp.Time)))
			if off := began.Sub(node.CreationTimestamp.Time) + ahead; off < -time.Minute || off > time.Minute {
				r.unproven = append(r.unproven, fmt.Sprintf("the clock of %s is not set", server.Name()))
			}
			missed := workload.CronJob("missed")
			missed.Spec.TimeZone = new("Etc/UTC")
			due := began.UTC().Add(-missedBy)
			missed.Spec.Schedule = fmt.Sprintf("%d %d * * *", due.Minute(), due.Hour())
			_, err = client.BatchV1().CronJobs(metav1.NamespaceDefault).Create(ctx, missed, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			behind, err := client.AppsV1().DaemonSets(metav1.NamespaceDefault).Create(ctx, workload.DaemonSet("behind", onOldNodes), metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())

			if ahead > 0 {
				r.deaths.Nodes = sets.New(r.joinSilent(ctx, client, "no-kubelet"))
			}

			r.passes(ctx, "its kubelet to start", began, lateKubelet)
			gomega.Expect(r.Cluster.Nodes().Revive(ctx, joined)).To(gomega.Succeed())
			r.converges(ctx, "a DaemonSet of before the clock is right", time.Minute, r.daemonSetDone(behind.UID, serverClockNodes))
			r.converges(ctx, "all Ready", 2*stepLimit, r.allReady(append(r.living(), joined)...))
			jobs, err := r.Client.BatchV1().Jobs(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			r.figure("runs of a CronJob made 10 min after its time", "%d", len(jobs.Items))

			if ahead > 0 {
				r.marked(ctx, "the one that never reports", shortTiming, began.Add(startupGrace-shortTiming.grace), r.deaths.Nodes.UnsortedList()...)
			}

			gomega.Expect(clock.Set(server.PID(), 0)).To(gomega.Succeed())
			righted := time.Now()
			set := create(ctx, r, workload.DaemonSet("righted", onOldNodes))
			r.figure("L after the clock is right", "%v", rounded(r.converges(ctx, "a DaemonSet of after that", time.Minute, r.daemonSetDone(set, serverClockNodes))))
			r.passes(ctx, "the passes after it", righted, 2*passPeriod)
			r.lived(shortTiming, began, time.Now(), r.living()...)
			r.digest("behind", behind.UID, oracle.Digest{PodsCreated: serverClockNodes, RevisionsCreated: 1})
			r.digest("righted", set, oracle.Digest{PodsCreated: serverClockNodes, RevisionsCreated: 1})

			events, err := r.Audit()
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			refused, last := 0, began
			for _, e := range events {
				if e.ResponseStatus.Code == http.StatusUnauthorized && e.StageTimestamp.After(began) {
					refused++
					last = e.StageTimestamp
				}
			}
			r.figure("requests refused for their token, the last after", "%d, %v", refused, rounded(last.Sub(began)))
		},
	}
}

func onOldNodes(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.NodeSelector = oldNodes }
