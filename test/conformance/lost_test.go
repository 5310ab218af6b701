// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// lostWrite is a creation whose client has given up, and the versions that were then read and written.
type lostWrite struct {
	name        string
	read, lease int64
}

// TestLostWrites: what becomes of writes whose client gives up while etcd stands still. Some are made, and of these some have a
// higher version than a consistent read that was sent after the loss: it did not show what was committed a moment later. None has a
// higher version than another write that was sent then, on which pkg/consistencystore relies.
//
//conformance:api-concepts Semantics for list: most recent is consistent, also beside writes whose client has given up
func TestLostWrites(t *testing.T) {
	const (
		clients, rounds = 8, 60
		patience        = 100 * time.Millisecond
		still, moves    = 3 * patience, patience * 3 / 4
	)
	// Without fsync hardly any write is under way when etcd is stopped.
	c := own(t, controlplane.Options{Etcd: controlplane.ProcessOptions{Args: []string{"--unsafe-no-fsync=false"}}})
	namespace := c.namespace(t, "lost-writes")
	maps, leases := c.kube.CoreV1().ConfigMaps(namespace), c.kube.CoordinationV1().Leases(namespace)
	var group, pauses sync.WaitGroup
	end := make(chan struct{})
	pauses.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(moves):
			}
			if err := c.Etcd().Pause(); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(still)
			if err := c.Etcd().Resume(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	lost := make(chan lostWrite, clients*rounds)
	for client := range clients {
		group.Go(func() {
			lease, err := leases.Create(t.Context(), &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("lease-", client)}}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			for round := range rounds {
				w := lostWrite{name: fmt.Sprintf("map-%d-%d", client, round)}
				short, cancel := context.WithTimeout(t.Context(), patience)
				_, err := maps.Create(short, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: w.name}}, metav1.CreateOptions{})
				cancel()
				if err == nil {
					continue
				}
				list, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1})
				if err == nil {
					w.read, err = strconv.ParseInt(list.ResourceVersion, 10, 64)
				}
				if err == nil {
					lease.Spec.HolderIdentity = &w.name
					lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
				}
				if err == nil {
					w.lease, err = strconv.ParseInt(lease.ResourceVersion, 10, 64)
				}
				if err != nil {
					t.Error(err)
					return
				}
				lost <- w
			}
		})
	}
	group.Wait()
	close(end)
	pauses.Wait()
	close(lost)
	made, err := maps.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	versions := map[string]int64{}
	for _, m := range made.Items {
		versions[m.Name], err = strconv.ParseInt(m.ResourceVersion, 10, 64)
		require.NoError(t, err)
	}
	all, afterRead, afterWrite := 0, sets.New[string](), sets.New[string]()
	for w := range lost {
		version, ok := versions[w.name]
		if !ok {
			continue
		}
		all++
		if version > w.read {
			afterRead.Insert(w.name)
		}
		if version > w.lease {
			afterWrite.Insert(w.name)
		}
	}
	t.Logf("%d creations, of which the client gave up %d that were made; %d of these after a consistent read, %d after another write", clients*rounds, all, afterRead.Len(), afterWrite.Len())
	require.Positive(t, all)
	require.Empty(t, afterWrite)
}
