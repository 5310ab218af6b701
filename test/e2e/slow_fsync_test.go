// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	slowDiskNodes = 20
	// flushTakes is by how much longer each flush of etcd's log takes.
	flushTakes = time.Second
	// slowRoll bounds the making and the rolling update of slowDiskNodes pods, slowDown at once, on such a disk.
	slowRoll = 3 * time.Minute
	slowDown = 5
	// slowEtcdVariable names the etcd that test/internal/slowdisk builds.
	slowEtcdVariable = "E2E_SLOW_ETCD"
)

// Etcd's disk is slow: writes take a second or two, and reads and watches no longer than before. So consistent reads are answered
// while writes are under way that were sent before them. Stock is not hurt. Fresh KCM must be as far, with the same pods created and deleted.
var _ = describe(scenario{
	number: 58, title: "etcd takes 1 s longer for each fsync: a DaemonSet made and rolled", label: long, mutants: []without{{"own-writes", oracle.RuleStatusConflict}},
	// What is under way is late for the truth, too.
	allows: []string{oracle.RuleTooLate},
	options: rig.Options{Cluster: controlplane.Options{
		Nodes: controlplane.NodeOptions{Count: slowDiskNodes},
		Etcd:  controlplane.ProcessOptions{Binary: os.Getenv(slowEtcdVariable), Args: []string{"--unsafe-no-fsync=false"}},
	}}, idle: true,
	timeout: 10 * time.Minute,
	run: func(ctx context.Context, r *run) {
		gomega.Expect(os.Getenv(slowEtcdVariable)).NotTo(gomega.BeEmpty(), "%s names the etcd; hack/test-e2e.sh builds it", slowEtcdVariable)
		r.told(ctx, truth.Nodes)
		slow := filepath.Join(os.TempDir(), fmt.Sprint("slowdisk-", r.Cluster.Etcd().PID()))
		gomega.Expect(os.WriteFile(slow, []byte(flushTakes.String()), 0o644)).To(gomega.Succeed())
		ginkgo.DeferCleanup(func() { _ = os.Remove(slow) })
		before := r.flushes(ctx)
		began := time.Now()

		const name = "slow"
		set := create(ctx, r, workload.DaemonSet(name, workload.MaxUnavailable(slowDown)))
		r.figure("L made after", "%v", rounded(r.converges(ctx, "the DaemonSet", slowRoll, r.daemonSetDone(set, slowDiskNodes))))
		setImage(ctx, r, name, workload.Image+":next")
		r.figure("L rolled after", "%v", rounded(r.converges(ctx, "the rolling update", slowRoll, r.daemonSetDone(set, slowDiskNodes))))

		took, n := r.flushes(ctx).since(before)
		r.figure("V flushes of etcd's log, each took", "%d, %v", n, took.Round(time.Millisecond))
		if took < flushTakes || n < 2*slowDiskNodes/slowDown {
			r.unproven = append(r.unproven, "etcd's disk was not slow")
		}
		gomega.Expect(os.Remove(slow)).To(gomega.Succeed())
		events, err := r.Audit()
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		reads, writes := 0, 0
		for _, e := range events {
			switch ours := e.ServiceAccount() == oracle.DaemonSetController && e.RequestReceivedTimestamp.After(began); {
			case !ours || e.Stage != "ResponseComplete" || e.Verb == "watch":
			case e.Verb == "get" || e.Verb == "list":
				reads++
			default:
				writes++
			}
		}
		r.figure("reads, writes of the DaemonSet controller", "%d, %d", reads, writes)
		r.digest(name, set, oracle.Digest{PodsCreated: 2 * slowDiskNodes, PodsDeleted: slowDiskNodes, RevisionsCreated: 2})
	},
})

// flushed is how often etcd has flushed its log, and how long that took in all.
type flushed struct {
	n    int
	took time.Duration
}

func (f flushed) since(before flushed) (each time.Duration, n int) {
	if n = f.n - before.n; n == 0 {
		return 0, 0
	}
	return (f.took - before.took) / time.Duration(n), n
}

func (r *run) flushes(ctx context.Context) flushed {
	ginkgo.GinkgoHelper()
	metrics, err := r.Cluster.EtcdMetrics(ctx)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	const metric = "etcd_disk_wal_fsync_duration_seconds"
	return flushed{int(sumOf(metrics, metric+"_count")), time.Duration(sumOf(metrics, metric+"_sum") * float64(time.Second))}
}
