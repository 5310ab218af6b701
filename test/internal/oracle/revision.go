// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"bytes"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// RuleRevisionDeleted is broken by the deletion of a revision that a DaemonSet still needs.
const RuleRevisionDeleted = "unjustified delete of a revision"

// revisionsWronged judges the deletions of revisions by the DaemonSet controller, on the true state just before. A revision goes
// if there are more than are to be kept, and it is neither the current one nor that of a live pod. Of several current ones all but one go.
func revisionsWronged(t *truth.Recorder, a *arrivals) []Violation {
	var out []Violation
	last := map[types.UID]truth.Event{}
	for _, e := range t.Events(truth.ControllerRevisions) {
		before, known := last[e.UID]
		last[e.UID] = e
		if !known || deletes(before) || e.Type != watch.Deleted && !deletes(e) {
			continue
		}
		w := a.deletion(truth.ControllerRevisions, before, e)
		if w == nil || By(w) != DaemonSetController {
			continue
		}
		since := w.RequestReceivedTimestamp.Add(-promised - a.lag)
		if wrong := revisionNeeded(t, before, e.RV-1, since); wrong != "" {
			out = append(out, Violation{Oracle: "S2", Rule: RuleRevisionDeleted, Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time, Detail: wrong})
		}
	}
	return out
}

// revisionNeeded says why a DaemonSet needs one of its revisions, if it has had its spec since a time.
func revisionNeeded(t *truth.Recorder, e truth.Event, at uint64, since time.Time) string {
	set, ok := t.At(truth.DaemonSets, at)[DaemonSetOf(revision(e))]
	if !ok || daemonSet(set).DeletionTimestamp != nil {
		return ""
	}
	ds := daemonSet(set)
	for _, other := range t.Events(truth.DaemonSets) {
		if other.UID == ds.UID && other.RV <= at && !other.Initial && daemonSet(other).Generation == ds.Generation {
			if other.Time.After(since) {
				return "" // what the deletion rests on may be the spec before
			}
			break
		}
	}
	current := func(e truth.Event) bool {
		match, err := daemon.Match(ds, revision(e))
		return err == nil && match
	}
	others, currents := 0, 0
	for _, other := range t.At(truth.ControllerRevisions, at) {
		if other.UID == e.UID || DaemonSetOf(revision(other)) != ds.UID {
			continue
		}
		if bytes.Equal(revision(other).Data.Raw, revision(e).Data.Raw) {
			return "" // it is one of several
		}
		others++
		if current(other) {
			currents++
		}
	}
	if current(e) {
		return "it is the current one"
	}
	hash := revision(e).Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
	for _, p := range t.At(truth.Pods, at) {
		if hash != "" && DaemonSetOf(pod(p)) == ds.UID && live(p) && pod(p).Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == hash {
			return "pod " + p.Name + " is of it"
		}
	}
	// Of those that are left, without the current ones, as many as are to be kept.
	if kept := others - currents; kept < int(ptr.Deref(ds.Spec.RevisionHistoryLimit, 10)) {
		return fmt.Sprintf("only %d old ones are left", kept)
	}
	return ""
}

// deletes reports whether an object is being deleted.
func deletes(e truth.Event) bool {
	m, err := meta.Accessor(e.Object)
	return err == nil && m.GetDeletionTimestamp() != nil
}
