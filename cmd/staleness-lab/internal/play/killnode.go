// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/story"
)

// killNode stops a node's heartbeats, and brings it back.
func (p *Player) killNode(ctx context.Context, name string, d time.Duration, r *report) (err error) {
	node, err := p.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if node.Labels[controlplane.AliveLabel] == "" {
		return fmt.Errorf("node %s is dead already", name)
	}
	killed := time.Now()
	dead := true
	revive := func() error {
		if !dead {
			return nil
		}
		dead = false
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		return p.Cluster.Nodes().Revive(undo, name)
	}
	defer func() { err = errors.Join(err, revive()) }()
	if err := p.Cluster.Nodes().Kill(ctx, name); err != nil {
		return err
	}
	r.line("node %s is dead for %v: no heartbeat, no status", name, d)
	r.line("kube-controller-manager gives it --node-monitor-grace-period, 50 s by default")

	seen := ""
	look := func(ctx context.Context) string {
		node, err := p.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return seen
		}
		if now := health(node); now != seen {
			if seen != "" {
				r.line("Fresh KCM: node %s is %s", name, now)
			}
			seen = now
		}
		return seen
	}
	if _, err := watch(ctx, d, func(ctx context.Context) bool { look(ctx); return false }); err != nil {
		return err
	}
	requests, err := story.CountRequests(p.Cluster.APIServers()[0].AuditLogPath(), killed, time.Now())
	if err != nil {
		return err
	}
	r.line("Fresh KCM: in that time it read leases of nodes live %d times, and sent %d proofs of one object or none for all resources",
		requests.NodeLeaseReads, requests.Fences)
	if err := revive(); err != nil {
		return err
	}
	back := time.Now()
	r.line("node %s is alive again", name)
	healed, err := watch(ctx, healLimit, func(ctx context.Context) bool { return look(ctx) == healthy })
	if err != nil {
		return err
	}
	if healed {
		r.line("Fresh KCM: the node is Ready without taints %.1f s later", time.Since(back).Seconds())
	} else {
		r.line("node %s is not Ready without taints after %v: kubectl describe node %s", name, healLimit, name)
	}
	r.text("Stock upstream: %s", stockNodeDeath)
	return nil
}

const healthy = "Ready, without taints"

// health is a node's condition and taints in words.
func health(node *corev1.Node) string {
	ready := corev1.ConditionUnknown
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = c.Status
		}
	}
	what := "Ready=" + string(ready)
	if ready == corev1.ConditionTrue {
		what = "Ready"
	}
	var taints []string
	for _, t := range node.Spec.Taints {
		taints = append(taints, t.Key+":"+string(t.Effect))
	}
	if len(taints) == 0 {
		return what + ", without taints"
	}
	return what + ", tainted " + strings.Join(taints, " ")
}
