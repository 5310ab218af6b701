// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// Digest counts what happened to the objects of one DaemonSet since the recording began. Two runs of the
// same workload must have the same digest, whatever the faults.
type Digest struct {
	PodsCreated, PodsDeleted           int
	RevisionsCreated, RevisionsDeleted int
}

// DigestOf makes the digest of a DaemonSet. It needs pods and controllerrevisions recorded.
func DigestOf(t *truth.Recorder, set types.UID) Digest {
	var d Digest
	for _, e := range t.Events(truth.Pods) {
		if DaemonSetOf(pod(e)) != set || e.Initial {
			continue
		}
		switch e.Type {
		case watch.Added:
			d.PodsCreated++
		case watch.Deleted:
			d.PodsDeleted++
		}
	}
	for _, e := range t.Events(truth.ControllerRevisions) {
		if DaemonSetOf(revision(e)) != set || e.Initial {
			continue
		}
		switch e.Type {
		case watch.Added:
			d.RevisionsCreated++
		case watch.Deleted:
			d.RevisionsDeleted++
		}
	}
	return d
}

// DaemonSetDone returns nil if, by the truth as it stands, a DaemonSet is in its reference end state: on
// each of so many nodes exactly one live pod, available and of the current template, nothing elsewhere, and
// a status that says so. With strategy OnDelete pods may be of any revision.
func DaemonSetDone(t *truth.Recorder, set types.UID, nodes int) error {
	e, ok := t.At(truth.DaemonSets, truth.Latest)[set]
	if !ok {
		return fmt.Errorf("DaemonSet %s is not there", set)
	}
	ds := daemonSet(e)
	onDelete := ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	hash := currentHash(t, ds, truth.Latest)
	if hash == "" {
		return fmt.Errorf("DaemonSet %s has no revision of its template", ds.Name)
	}
	on, updated := map[string]int{}, 0
	for _, p := range t.At(truth.Pods, truth.Latest) {
		if DaemonSetOf(pod(p)) != set {
			continue
		}
		if !live(p) {
			return fmt.Errorf("pod %s is being deleted", p.Name)
		}
		on[NodeOf(pod(p))]++
		if pod(p).Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == hash {
			updated++
		}
	}
	for node, n := range on {
		if n != 1 {
			return fmt.Errorf("DaemonSet %s has %d pods on node %s", ds.Name, n, node)
		}
	}
	if len(on) != nodes {
		return fmt.Errorf("DaemonSet %s has pods on %d of %d nodes", ds.Name, len(on), nodes)
	}
	if updated != nodes && !onDelete {
		return fmt.Errorf("DaemonSet %s has %d of %d pods of its template", ds.Name, updated, nodes)
	}
	n := int32(nodes)
	want := appsv1.DaemonSetStatus{
		DesiredNumberScheduled: n, CurrentNumberScheduled: n, NumberReady: n, NumberAvailable: n,
		UpdatedNumberScheduled: int32(updated), ObservedGeneration: ds.Generation, CollisionCount: ds.Status.CollisionCount,
	}
	got := ds.Status
	got.Conditions = nil
	if fmt.Sprintf("%+v", want) != fmt.Sprintf("%+v", got) {
		return fmt.Errorf("DaemonSet %s has status %s, want %s", ds.Name, brief(got), brief(want))
	}
	return nil
}

func brief(s appsv1.DaemonSetStatus) string {
	return fmt.Sprintf("desired=%d current=%d ready=%d available=%d unavailable=%d updated=%d misscheduled=%d generation=%d",
		s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.NumberReady, s.NumberAvailable, s.NumberUnavailable,
		s.UpdatedNumberScheduled, s.NumberMisscheduled, s.ObservedGeneration)
}
