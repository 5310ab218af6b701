// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package tainteviction

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	consistencyutil "k8s.io/kubernetes/pkg/controller/util/consistency"
)

// wantedGuard tells the test whether the eviction is wanted, once the test has had something happen.
type wantedGuard struct {
	consistencyutil.ConsistencyStore
	happens func()
	wanted  chan bool
}

func (g *wantedGuard) GuardEvictions(context.Context, consistencyutil.Evictor) consistencyutil.EvictionGuard {
	return g
}

func (g *wantedGuard) Evict(_ context.Context, _ consistencyutil.Eviction, _ time.Time, wanted func() bool) *consistencyutil.RetryEviction {
	g.happens()
	g.wanted <- wanted()
	return nil
}

// What happens to a node is known before a worker gets to it. An eviction from one that loses its taint is not wanted any more, but from one that is gone it is, as on upstream.
func TestAnEvictionIsWantedWhenItsNodeIsGone(t *testing.T) {
	tainted := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: v1.NodeSpec{Taints: []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoExecute}}}}
	for name, gone := range map[string]bool{"it loses its taint": false, "it is gone": true} {
		t.Run(name, func(t *testing.T) {
			guard := &wantedGuard{ConsistencyStore: consistencyutil.NewNoopConsistencyStore(), wanted: make(chan bool)}
			consistencyutil.SetProvider(func(string, map[schema.GroupResource]consistencyutil.LastSyncRVGetter) consistencyutil.ConsistencyStore {
				return guard
			})
			defer consistencyutil.SetProvider(nil)
			factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			nodes, pods := factory.Core().V1().Nodes(), factory.Core().V1().Pods()
			if err := pods.Informer().AddIndexers(cache.Indexers{"spec.nodeName": func(any) ([]string, error) { return nil, nil }}); err != nil {
				t.Fatal(err)
			}
			tc, err := New(t.Context(), fake.NewClientset(), pods, nodes, "test")
			if err != nil {
				t.Fatal(err)
			}
			guard.happens = func() {
				if gone {
					tc.NodeUpdated(tainted, nil)
					return
				}
				now := &v1.Node{ObjectMeta: tainted.ObjectMeta}
				if err := nodes.Informer().GetStore().Add(now); err != nil {
					t.Error(err)
				}
				tc.NodeUpdated(tainted, now)
			}
			now := time.Now()
			tc.taintEvictionQueue.AddWork(t.Context(), tc.workArgs(types.NamespacedName{Namespace: "ns", Name: "pod"}, "uid", "node", now), now, now)
			if wanted := <-guard.wanted; wanted != gone {
				t.Errorf("wanted: %t", wanted)
			}
		})
	}
}
