// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

func TestADaemonSetComesBackWhenItsNextPodIsAvailable(t *testing.T) {
	name := types.NamespacedName{Namespace: "ns", Name: "set"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}, Spec: appsv1.DaemonSetSpec{MinReadySeconds: 10}}
	always := set.DeepCopy()
	always.Spec.MinReadySeconds = 0
	// podsReady since so long ago.
	podsReady := func(since ...time.Duration) *owned {
		var pods []any
		for _, s := range since {
			pods = append(pods, &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-s))}}}})
		}
		return &owned{list: func() ([]any, error) { return pods, nil }}
	}
	for what, c := range map[string]struct {
		read  func(s *Store)
		after []time.Duration
	}{
		"the first of several": {func(s *Store) { s.wakeWhenAvailable(set, podsReady(3*time.Second, 8*time.Second, time.Minute)) }, []time.Duration{2 * time.Second}},
		"replaced meanwhile": {func(s *Store) {
			s.wakeWhenAvailable(set, podsReady(4*time.Second))
			time.Sleep(5 * time.Second)
			s.wakeWhenAvailable(set, podsReady(0))
		}, []time.Duration{15 * time.Second}},
		"all are available":    {func(s *Store) { s.wakeWhenAvailable(set, podsReady(time.Minute)) }, nil},
		"available when ready": {func(s *Store) { s.wakeWhenAvailable(set, podsReady(0)); s.wakeWhenAvailable(always, podsReady(0)) }, nil},
		"deleted": {func(s *Store) {
			s.wakeWhenAvailable(set, podsReady(0))
			s.mu.Lock()
			s.stopWaking(name)
			s.mu.Unlock()
		}, nil},
		"its writes fail": {func(s *Store) {
			s.wakeWhenAvailable(set, podsReady(0))
			s.refusals.note(name, transport.Write{Method: http.MethodPost, Resource: podResource})
		}, nil},
		"of another kind": {func(s *Store) { s.wakeWhenAvailable(&appsv1.StatefulSet{}, podsReady(0)) }, nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var after []time.Duration
				s := &Store{ctx: t.Context()}
				s.OnReady(func(key string) {
					require.Equal(t, "ns/set", key)
					after = append(after, time.Since(began))
				})
				c.read(s)
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, c.after, after)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		term, end := context.WithCancel(t.Context())
		s := &Store{ctx: term}
		s.OnReady(func(key string) { t.Error("woken after the term of leadership has ended:", key) })
		s.wakeWhenAvailable(set, podsReady(0))
		end()
		time.Sleep(time.Minute)
	})
}
