// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// An end state has nothing of the way to it, and everything that is wrong with it.
func TestEndState(t *testing.T) {
	state := func(change func(h *history)) []string {
		h := &history{}
		h.node(watch.Added, "n", ready(corev1.ConditionTrue, 0))
		h.set(watch.Added, status(1, 7))
		h.pod(watch.Added, "a", "n", readiness(corev1.ConditionTrue))
		change(h)
		return EndState(truth.Replay(h.events))
	}
	reference := state(func(*history) {})
	require.Len(t, reference, 3)
	require.Empty(t, Unlike(state(func(h *history) {
		h.pod(watch.Deleted, "a", "n")
		h.pod(watch.Added, "b", "n", readiness(corev1.ConditionTrue))
		h.set(watch.Modified, status(1, 8))
	}), reference))
	for name, change := range map[string]func(h *history){
		"a pod too many":      func(h *history) { h.pod(watch.Added, "b", "n", readiness(corev1.ConditionTrue)) },
		"a pod missing":       func(h *history) { h.pod(watch.Deleted, "a", "n") },
		"an orphan":           func(h *history) { h.set(watch.Deleted) },
		"a pod not Ready":     func(h *history) { h.pod(watch.Modified, "a", "n", readiness(corev1.ConditionFalse)) },
		"a taint left":        func(h *history) { h.node(watch.Modified, "n", ready(corev1.ConditionTrue, 0), tainted(unreachable)) },
		"a node not Ready":    func(h *history) { h.node(watch.Modified, "n", ready(corev1.ConditionUnknown, 0)) },
		"a status that lacks": func(h *history) { h.set(watch.Modified, status(0, 8)) },
	} {
		require.NotEmpty(t, Unlike(state(change), reference), name)
	}
}

func TestLeftOver(t *testing.T) {
	h := &history{}
	h.set(watch.Added)
	h.pod(watch.Added, "a", "n")
	require.Empty(t, LeftOver(truth.Replay(h.events)))
	h.pod(watch.Added, "b", "n", deleting)
	require.Equal(t, []string{"b"}, LeftOver(truth.Replay(h.events)))
	h.set(watch.Deleted)
	require.Len(t, LeftOver(truth.Replay(h.events)), 2)
}

func TestBystanders(t *testing.T) {
	at := func(second float64, verb, resource, namespace, name, user string) controlplane.AuditEvent {
		e := controlplane.AuditEvent{Stage: "ResponseComplete", Verb: verb}
		e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name, e.User.Username = resource, namespace, name, user
		e.ResponseStatus.Code = 201
		e.RequestReceivedTimestamp = time.Unix(0, int64(second*1e9))
		e.StageTimestamp = e.RequestReceivedTimestamp
		return e
	}
	served := func(second float64, name string) controlplane.AuditEvent {
		return at(second, "create", "serviceaccounts", name, "default", account+serviceAccountController)
	}
	writes := []controlplane.AuditEvent{
		at(1, "create", "namespaces", "", "a", "admin"), served(1.25, "a"), served(9, "a"),
		at(2, "create", "namespaces", "", "b", "admin"), at(2, "create", "serviceaccounts", "b", "default", "admin"), served(2.5, "b"),
		at(5, "create", "namespaces", "", "c", "admin"), served(8, "c"),
		at(10, "create", "namespaces", "", "d", "admin"),
	}
	got := Bystanders(writes, Period{time.Unix(6, 0), time.Unix(7, 0)})
	require.Equal(t, []time.Duration{250 * time.Millisecond, 500 * time.Millisecond}, got)
	require.Equal(t, 500*time.Millisecond, Percentile(got, 99))
	require.Equal(t, 250*time.Millisecond, Percentile(got, 50))
	require.Zero(t, Percentile(nil, 99))
}
