// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package kept

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

type part struct {
	owners map[string]*part
	queue  []int
	tokens chan struct{}
	any    any
	known  sync.Map
	now    atomic.Pointer[part]
	busy   atomic.Int32
	pod    *corev1.Pod
	self   *part
}

func TestEntries(t *testing.T) {
	hidden := &part{queue: []int{1, 2, 3}}
	p := &part{
		owners: map[string]*part{"a": {queue: []int{1}}, "b": nil}, tokens: make(chan struct{}, 4), any: map[int]bool{1: true},
		pod: &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}},
	}
	p.self = p
	p.tokens <- struct{}{}
	p.known.Store("a", hidden)
	p.now.Store(hidden)
	p.busy.Store(5)
	const of = "composition/internal/kept.part."
	assert.Equal(t, Counts{of + "owners": 2, of + "queue": 4, of + "tokens": 1, of + "any": 1, of + "known": 1, of + "busy": 5}, Entries(p, p))
	assert.Equal(t, Counts{}, Entries((*part)(nil)))
}

func TestCounts(t *testing.T) {
	now := Counts{"a.x": 3, "a.y": 1, "b": 2}
	assert.Equal(t, 4, now.Sum("a."))
	assert.Equal(t, Counts{"a.x": 1, "b": 2}, now.Over(Counts{"a.x": 2, "a.y": 1, "c": 7}))
	now.Raise(Counts{"a.x": 1, "c": 9})
	assert.Equal(t, "a.x: 3, a.y: 1, b: 2, c: 9", now.String())
}

func TestCount(t *testing.T) {
	series := func(pairs ...string) *dto.Metric {
		m := &dto.Metric{}
		for i := 0; i < len(pairs); i += 2 {
			m.Label = append(m.Label, &dto.LabelPair{Name: &pairs[i], Value: &pairs[i+1]})
		}
		return m
	}
	family := &dto.MetricFamily{}
	assert.Zero(t, count(family))
	for i := range words {
		family.Metric = append(family.Metric, series("controller", "job", "outcome", fmt.Sprint("word", i)))
	}
	assert.Equal(t, 1, count(family), "what happens for the first time")
	family.Metric = append(family.Metric, series("controller", "daemonset", "outcome", "word0"))
	assert.Equal(t, 2, count(family), "another controller")
	family.Metric = append(family.Metric, series("controller", "job", "outcome", "pods x not found"))
	assert.Equal(t, 3, count(family), "no word")
}

func TestTake(t *testing.T) {
	s, err := Take(&part{queue: []int{1}})
	require.NoError(t, err)
	assert.Positive(t, s.Heap)
	assert.Positive(t, s.Goroutines)
	assert.Positive(t, s.Series.Sum(""))
	assert.Equal(t, 1, s.Entries.Sum("composition/internal/kept.part.queue"))
}
