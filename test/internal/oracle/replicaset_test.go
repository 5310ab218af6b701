// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// A scale-down of three pods to one deletes two of them. That somebody else has taken the third away it need not know for as long before its first deletion as is promised.
func TestPodsThatOthersTookAway(t *testing.T) {
	for name, tt := range map[string]struct {
		by     string
		before uint64 // seconds before the scale-down's first deletion at which the third pod was deleted
		wrong  int
	}{
		"just before":            {"admin", 1, 0},
		"long before":            {"admin", 5, 1},
		"just before, by itself": {account + ReplicaSetController, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			of := func(p *corev1.Pod) {
				p.OwnerReferences[0].Kind, p.OwnerReferences[0].UID, p.OwnerReferences[0].Name = "ReplicaSet", "rs", "rs"
			}
			h.add(truth.ReplicaSets, watch.Added, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", Namespace: "default", UID: "rs"}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1))}})
			pods := []string{"a", "b", "c"}
			for _, name := range pods {
				h.pod(watch.Added, name, "n", of)
			}
			h.idle(100)
			h.pod(watch.Deleted, "c", "n", of)
			h.asked(tt.by, "delete", "pods", "c", moment)
			h.idle(tt.before - 1)
			for _, name := range pods[:2] {
				h.pod(watch.Deleted, name, "n", of)
				h.asked(account+ReplicaSetController, "delete", "pods", name, moment)
			}
			require.Len(t, Unjustified(truth.Replay(h.events), h.writes, Deaths{}, ReplicaSetDeletes), tt.wrong)
		})
	}
}
