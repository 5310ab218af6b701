// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package leadership

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// slowLock takes a second for each write, and fails on demand.
type slowLock struct {
	resourcelock.Interface
	fail atomic.Bool
}

func (l *slowLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	time.Sleep(time.Second)
	if l.fail.Load() {
		return errors.New("no server")
	}
	return l.Interface.Update(ctx, record)
}

func TestLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock := &slowLock{Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: "kube-system", Name: "kcm"},
			Client:     fake.NewClientset().CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
		}}
		term := make(chan *Lock, 1)
		config := Observe(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { term <- From(ctx) },
				OnStoppedLeading: func() {},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			leaderelection.RunOrDie(ctx, config)
		}()
		l := <-term
		require.Equal(t, 15*time.Second, l.LeaseDuration)
		require.Less(t, time.Since(l.Renewed()), 10*time.Millisecond, "it was created")
		for range 100 {
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			require.LessOrEqual(t, time.Since(l.Renewed()), 4*time.Second)
			require.False(t, time.Since(l.Renewed()) < time.Second && !l.Renewed().Before(time.Now()), "a renewal counts from its sending")
		}
		lock.fail.Store(true)
		time.Sleep(5 * time.Second)
		require.Greater(t, time.Since(l.Renewed()), 4*time.Second, "a renewal that failed is none")
		lock.fail.Store(false)
		time.Sleep(3 * time.Second)
		cancel()
		<-done
		require.True(t, l.Renewed().IsZero(), "it was given up")
	})
	require.Nil(t, From(t.Context()))
}
