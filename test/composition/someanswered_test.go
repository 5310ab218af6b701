// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
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
	step := schedule.Step{Action: schedule.Scale, N: 1}
	if kind == "DaemonSet" {
		step.Action = schedule.Roll
	}
	chance := rand.New(rand.NewPCG(1, 1))
	crowd(t, arm, kind, 15, step, func(r *model.Request, since time.Duration) (fate model.Fate) {
		if r.Resource == model.Leases || r.Resource == model.Events || r.Verb == "watch" {
			return fate
		}
		if r.Write() {
			writes++
		}
		if chance.IntN(10) > 0 {
			fate.Refusal = model.Refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the server is busy", 1)
		} else if r.Write() {
			took = since
		}
		return fate
	}, func(model.Truth) {})
	return writes, took
}
