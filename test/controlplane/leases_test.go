// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
)

// generated are the renewals of a generator for three nodes: the times of each, since the start.
type generated struct {
	*testing.T
	client *fake.Clientset
	g      *leaseGenerator
	begin  time.Time

	mu      sync.Mutex // guards what follows
	refused bool
	renewed map[string][]time.Duration
}

// generate runs a test on a generator in a bubble of virtual time.
func generate(t *testing.T, test func(*generated)) {
	synctest.Test(t, func(t *testing.T) {
		r := &generated{T: t, client: fake.NewClientset(), begin: time.Now(), renewed: map[string][]time.Duration{}}
		note := func(action clienttesting.Action) (bool, runtime.Object, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.refused {
				return true, nil, errors.New("refused")
			}
			// Create and update alike have an object.
			lease := action.(clienttesting.CreateAction).GetObject().(*coordinationv1.Lease)
			r.renewed[lease.Name] = append(r.renewed[lease.Name], time.Since(r.begin))
			return false, nil, nil
		}
		r.client.PrependReactor("create", "leases", note)
		r.client.PrependReactor("update", "leases", note)
		r.g = newLeaseGenerator(klog.NewContext(t.Context(), logr.Discard()), r.client.CoordinationV1().Leases(nodeLeaseNamespace), 40*time.Second)
		defer r.g.end()
		for i := range 3 {
			name := fmt.Sprintf("node-%d", i)
			r.g.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}})
		}
		test(r)
	})
}

// after lets time go by and returns how often each node's lease was renewed in it, and since the call before.
func (r *generated) after(d time.Duration) (counts [3]int) {
	r.Helper()
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range counts {
		counts[i] = len(r.renewed[fmt.Sprintf("node-%d", i)])
	}
	clear(r.renewed)
	return counts
}

// refuse has every renewal refused, or none.
func (r *generated) refuse(all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = all
}

func TestLeasesAreRenewed(t *testing.T) {
	generate(t, func(r *generated) {
		require.Equal(t, [3]int{1, 1, 1}, r.after(5*time.Second), "at once")
		lease, err := r.client.CoordinationV1().Leases(nodeLeaseNamespace).Get(t.Context(), "node-1", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "node-1", *lease.Spec.HolderIdentity)
		require.Equal(t, int32(40), *lease.Spec.LeaseDurationSeconds)
		require.Equal(t, types.UID("uid-node-1"), lease.OwnerReferences[0].UID)
		require.Equal(t, [3]int{10, 10, 10}, r.after(103*time.Second), "every quarter of their duration, and a little later")
		again, err := r.client.CoordinationV1().Leases(nodeLeaseNamespace).Get(t.Context(), "node-1", metav1.GetOptions{})
		require.NoError(t, err)
		require.Greater(t, again.Spec.RenewTime.Sub(lease.Spec.RenewTime.Time), 95*time.Second)
	})
}

func TestDeadNodesRenewNothing(t *testing.T) {
	generate(t, func(r *generated) {
		r.after(5 * time.Second)
		r.g.setAlive("node-1", false)
		require.Equal(t, [3]int{5, 0, 5}, r.after(52*time.Second))
		r.g.setAlive("node-1", true)
		require.Equal(t, 1, r.after(time.Second)[1], "at once")
		r.g.pause(true)
		require.Equal(t, [3]int{}, r.after(time.Minute), "all are dead")
		r.g.pause(false)
		require.Equal(t, [3]int{1, 1, 1}, r.after(time.Second), "at once")
		r.g.remove("node-0")
		require.Equal(t, [3]int{0, 5, 5}, r.after(53*time.Second))
	})
}

func TestLeasesAfterErrors(t *testing.T) {
	generate(t, func(r *generated) {
		r.after(time.Second)
		r.refuse(true)
		require.Equal(t, [3]int{}, r.after(time.Minute))
		r.refuse(false)
		for _, n := range r.after(53 * time.Second) {
			require.Contains(t, []int{5, 6}, n, "the next renewal is tried as usual")
		}
	})
}
