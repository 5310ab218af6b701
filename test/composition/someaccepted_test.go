// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"fmt"
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

// A server that is busy accepts a write of many owners now and then, and puts all others off. What it accepts does not have all owners try at once: they need no more tries than on stock, and not much more time.
func TestTheServerAcceptsSomeOfManyWrites(t *testing.T) {
	for _, c := range []someAccepted{
		{kind: "ReplicaSet", resource: model.Pods, verb: "delete", replicas: 2, owners: 100},
		{kind: "ReplicaSet", resource: model.Pods, verb: "create", replicas: 4, owners: 40},
		{kind: "DaemonSet", resource: model.Pods, verb: "delete", owners: 40},
		{kind: "Deployment", resource: model.ReplicaSets, verb: "update", replicas: 2, owners: 40},
	} {
		for _, c.every = range []time.Duration{time.Second, 5 * time.Second} {
			for _, c.retryAfter = range []int{1, 5} {
				t.Run(fmt.Sprintf("%d %ss %s, one each %s, Retry-After %d", c.owners, c.kind, c.verb, c.every, c.retryAfter), func(t *testing.T) {
					stock, stocks := c.run(t, arms.Stock)
					ours, took := c.run(t, arms.Ours)
					t.Logf("stock: %d tries, done after %s; ours: %d, after %s", stock, stocks, ours, took)
					require.LessOrEqual(t, ours, stock*5/4)
					require.LessOrEqual(t, took, stocks*5/4+10*time.Second)
				})
			}
		}
	}
}

// someAccepted is a history in which each owner makes a write of a kind, of which the server accepts one every so often.
type someAccepted struct {
	kind       string
	resource   *model.Resource
	verb       string
	replicas   int // that each is scaled to; 0: it is rolled
	owners     int
	every      time.Duration
	retryAfter int
}

// run returns how many such writes were sent, and after how long the last one was accepted.
func (c someAccepted) run(t *testing.T, arm arms.Arm) (tries int, took time.Duration) {
	t.Helper()
	step := schedule.Step{Action: schedule.Scale, N: c.replicas}
	if c.replicas == 0 {
		step.Action = schedule.Roll
	}
	var accepted time.Time
	crowd(t, arm, c.kind, c.owners, step, func(r *model.Request, since time.Duration) (fate model.Fate) {
		switch {
		case r.Resource != c.resource || r.Verb != c.verb || r.Subresource != "":
			return fate
		case time.Since(accepted) >= c.every:
			accepted, took = time.Now(), since
		case c.verb == "create":
			fate.Refusal = model.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcd is busy", c.retryAfter)
		default:
			fate.Refusal = model.Refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the server is busy", c.retryAfter)
		}
		tries++
		return fate
	}, func(truth model.Truth) {
		if c.replicas > 0 {
			require.Len(t, truth.List(model.Pods), c.replicas*c.owners)
		}
	})
	return tries, took
}

// crowd has many owners of three pods each take a step at once, and looks at the server an hour later. From the step on fate decides on one request after the other.
func crowd(t *testing.T, arm arms.Arm, kind string, owners int, step schedule.Step, fate func(r *model.Request, since time.Duration) model.Fate, look func(model.Truth)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := model.New()
		var mu sync.Mutex
		var began time.Time
		server.Fate = func(r *model.Request) model.Fate {
			mu.Lock()
			defer mu.Unlock()
			if began.IsZero() {
				return model.Fate{}
			}
			return fate(r, time.Since(began))
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
		began = time.Now()
		mu.Unlock()
		for _, o := range s.Owners {
			step.Target = o.Name
			tr.Do(step)
		}
		time.Sleep(time.Hour)
		server.Look(look)
	})
}
