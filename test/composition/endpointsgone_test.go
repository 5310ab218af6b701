// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//lint:file-ignore SA1019 Endpoints are what it is about.

package composition

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// Services are deleted while it is not seen, for ten minutes, what was last written to their Endpoints, by their controller or by somebody else. The Endpoints go at once, as on stock.
func TestEndpointsOfAServiceThatIsGone(t *testing.T) {
	stock, ours := afterService(t, arms.Stock), afterService(t, arms.Ours)
	t.Logf("stock %+v, ours %+v", stock, ours)
	for _, name := range []string{"web", "manual"} {
		require.Less(t, ours.gone[name], stock.gone[name]+time.Second)
		require.LessOrEqual(t, ours.requests[name], stock.requests[name]+2)
	}
}

// goneEndpoints are for how long Endpoints outlived their Service, and how many requests about them were made meanwhile.
type goneEndpoints struct {
	gone     map[string]time.Duration
	requests map[string]int
}

// afterService deletes two Services while watches of Endpoints are held, which have been changed since.
func afterService(t *testing.T, arm arms.Arm) goneEndpoints {
	t.Helper()
	const held = 10 * time.Minute
	after := goneEndpoints{gone: map[string]time.Duration{}, requests: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		server := model.New()
		tr := traffic.Start(server, schedule.Schedule{Nodes: 1})
		manager, err := arms.Start(context.Background(), arm, server, arms.Flags{Endpoints: true})
		require.NoError(t, err)
		defer func() {
			tr.End()
			manager.End()
		}()
		server.Create(model.Pods, webPod(0))
		server.Create(model.Services, webService())
		server.Create(model.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: traffic.Namespace, Name: "manual"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}}})
		server.Create(model.Endpoints, &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: traffic.Namespace, Name: "manual"}, Subsets: subsets(1)})
		time.Sleep(20 * time.Second)
		server.Hold(model.Endpoints, true)
		server.Create(model.Pods, webPod(1))
		model.Change(server, model.Endpoints, traffic.Namespace, "manual", func(e *corev1.Endpoints) { e.Subsets = subsets(2) })
		time.Sleep(20 * time.Second)
		server.Observe = func(_ model.Truth, r *model.Request, done bool) {
			if done && r.Resource == model.Endpoints && r.Name != "" && strings.Contains(r.Agent, "endpoint-controller") {
				after.requests[r.Name]++
			}
		}
		began := time.Now()
		for _, name := range []string{"web", "manual"} {
			server.Delete(model.Services, traffic.Namespace, name, nil)
		}
		for time.Since(began) < held+time.Minute {
			time.Sleep(100 * time.Millisecond)
			if time.Since(began) >= held {
				server.Hold(model.Endpoints, false)
			}
			server.Look(func(truth model.Truth) {
				for _, o := range truth.List(model.Endpoints) {
					after.gone[o.GetName()] = time.Since(began)
				}
			})
		}
	})
	return after
}
