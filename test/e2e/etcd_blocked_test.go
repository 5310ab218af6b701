// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	upgradedNodes = 50
	// inBurst is how many pods of a DaemonSet are created when something happens to the control plane.
	inBurst = 10
	// blockedFor is how long etcd answers nobody.
	blockedFor = 4 * time.Second
)

// What an upgrade of the control plane brings, while DaemonSets are made. Etcd answers nobody for a while: its
// process is paused, because a defragmentation, which looks the same from outside, is over at once in a small
// database. Then the client is taken off one apiserver after the other, its connections cut, and that one is
// restarted. U0 reconciles with what it sees until its watches are back, and may make pods again.
var _ = describe(scenario{
	number: 22, title: "etcd blocked, apiservers restarted in turn, DaemonSets created meanwhile", label: long,
	hurts: rig.U0, rules: []string{oracle.RuleStatusConflict, oracle.RuleSurplus},
	// What arrives while etcd is blocked is made when it is not any more.
	allows: []string{oracle.RuleTooLate},
	options: rig.Options{
		KCMArgs: quickClient,
		Cluster: controlplane.Options{Nodes: controlplane.NodeOptions{Count: upgradedNodes}, APIServers: 3},
	}, idle: true,
	timeout: 6 * time.Minute,
	run: func(ctx context.Context, r *run) {
		sets := map[string]types.UID{}
		burst := func(name string) {
			sets[name] = create(ctx, r, workload.DaemonSet(name))
			r.eventually(ctx, "a burst of creations", func() (bool, error) {
				return oracle.DigestOf(r.Truth, sets[name]).PodsCreated >= inBurst, nil
			})
		}
		ends := func(name string) {
			r.figure(name+": L after", "%v", rounded(r.converges(ctx, name, time.Minute, r.daemonSetDone(sets[name], upgradedNodes))))
		}

		// The first one is left to the truth, since no watch is resumed on an apiserver that has been restarted.
		servers := r.Cluster.APIServers()[1:]
		gomega.Expect(r.Proxy.SwitchBackend(servers[0].Name(), faultproxy.EndWatches)).To(gomega.Succeed())
		burst("blocked")
		gomega.Expect(r.Cluster.Etcd().Pause()).To(gomega.Succeed())
		paused := time.Now()
		r.passes(ctx, "etcd to be blocked", paused, blockedFor)
		made := oracle.DigestOf(r.Truth, sets["blocked"]).PodsCreated
		gomega.Expect(r.Cluster.Etcd().Resume()).To(gomega.Succeed())
		r.figure("V pods made before etcd was blocked", "%d", made)
		if made >= upgradedNodes {
			r.unproven = append(r.unproven, "the burst was over before etcd was blocked")
		}
		ends("blocked")

		for i, server := range servers {
			name := fmt.Sprintf("restarted-%d", i)
			burst(name)
			made := oracle.DigestOf(r.Truth, sets[name]).PodsCreated
			gomega.Expect(r.Proxy.SwitchBackend(servers[(i+1)%len(servers)].Name(), faultproxy.CutConnections)).To(gomega.Succeed())
			r.figure("V pods made before "+server.Name()+" was left", "%d", made)
			if made >= upgradedNodes {
				r.unproven = append(r.unproven, "the burst was over before the restart")
			}
			gomega.Expect(server.Restart(ctx)).To(gomega.Succeed())
			ends(name)
		}
		for name, set := range sets {
			r.digest(name, set, oracle.Digest{PodsCreated: upgradedNodes, RevisionsCreated: 1})
		}
	},
})
