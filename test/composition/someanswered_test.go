// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// A server is so busy that it throttles nine of ten requests, reads of proofs, too, by chance. A deletion needs several of these, and is not to need all of them within two seconds: it would wait for hours.
func TestTheServerThrottlesNineOfTenRequests(t *testing.T) {
	for _, kind := range []string{"ReplicaSet", "DaemonSet", "Deployment"} {
		t.Run(kind, func(t *testing.T) {
			stock, stocks := throttled(t, arms.Stock, kind)
			ours, took := throttled(t, arms.Ours, kind)
			t.Logf("stock: %d writes, done after %s; ours: %d, after %s", stock, stocks, ours, took)
			require.LessOrEqual(t, ours, stock*3/2)
			require.LessOrEqual(t, took, stocks*3+2*time.Minute)
		})
	}
}

// throttled has 15 owners exchange a pod or more while requests are throttled, and returns how many writes were sent, and after how long the last one was accepted.
func throttled(t *testing.T, arm arms.Arm, kind string) (writes int, took time.Duration) {
	t.Helper()
	const owners = 15
	synctest.Test(t, func(t *testing.T) {
		server := model.New()
		var mu sync.Mutex
		var throttles bool
		var accepted time.Time
		chance := rand.New(rand.NewPCG(1, 1))
		server.Fate = func(r *model.Request) (fate model.Fate) {
			mu.Lock()
			defer mu.Unlock()
			if !throttles || r.Resource == model.Leases || r.Resource == model.Events || r.Verb == "watch" {
				return fate
			}
			if r.Write() {
				writes++
			}
			if chance.IntN(10) > 0 {
				fate.Refusal = model.Refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the server is busy", 1)
			} else if r.Write() {
				accepted = time.Now()
			}
			return fate
		}
		s := schedule.Schedule{Nodes: 3}
		for i := range owners {
			s.Owners = append(s.Owners, schedule.Owner{Kind: kind, Name: fmt.Sprint("owner-", i), Replicas: 3})
		}
		tr := traffic.Start(server, s)
		manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Deployments: kind == "Deployment"})
		require.NoError(t, err)
		defer func() {
			tr.End()
			manager.End()
		}()
		time.Sleep(2 * time.Minute)
		mu.Lock()
		throttles = true
		mu.Unlock()
		began := time.Now()
		for _, o := range s.Owners {
			step := schedule.Step{Action: schedule.Scale, Target: o.Name, N: 1}
			if kind == "DaemonSet" {
				step.Action = schedule.Roll
			}
			tr.Do(step)
		}
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		took = accepted.Sub(began)
	})
	return writes, took
}
