// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package evictionguard

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
)

// cachedNodes is an evictor whose cache has all nodes.
type cachedNodes struct{ Evictor }

func (cachedNodes) CachedNode(name string) (*corev1.Node, error) {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// A proof may be as old as the server took for it, and 2 s; for how long the cache took to catch up it may not.
func TestViewsAgeByWhatTheServerTook(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		old    bool
	}{
		"the server took long":      {"Fence", false},
		"the cache had to catch up": {"Wait", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				guard := NewTaintGuard(ctx, Options{Controller: evictionController, Budget: livereads.NewBudget(0, 0), Prove: func(_ context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
					asked := time.Now()
					time.Sleep(5 * time.Second)
					return freshness.Proof{Resource: resource.WithVersion(""), Outcome: freshness.Proven, At: asked, Method: c.method}
				}}, cachedNodes{})
				view, err := guard.view(ctx, "node", time.Now())
				require.NoError(t, err)
				require.False(t, view.live)
				require.Equal(t, c.old, view.old())
				time.Sleep(proofAge + 1)
				require.True(t, view.old())
			})
		})
	}
}
