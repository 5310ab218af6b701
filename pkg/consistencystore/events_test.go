// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// Each object that waits for long has an event, of many the log names a few.
func TestTheLogNamesAFewOfManyThatWait(t *testing.T) {
	var lines []string
	ctx := klog.NewContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	events := record.NewFakeRecorder(9)
	reporter := NewReporter(events)
	wait := rvtracker.Wait{Controller: "daemonset", Owner: types.NamespacedName{Namespace: "ns", Name: "first"}, Resource: pods, SeenRV: "5"}
	reporter.Report(ctx, wait, "a proof")
	wait.Further = true
	reporter.Report(ctx, wait, "a proof")
	require.Len(t, events.Events, 2)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], `"owner"={"name"="first" "namespace"="ns"}`)
}

// An action that is put off for long has one event, on its owner, and a value has none: there is no object to put it on.
func TestAnActionThatIsPutOffForLongHasAnEvent(t *testing.T) {
	for controller, kind := range kinds {
		t.Run(controller, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				events := record.NewFakeRecorder(9)
				events.IncludeObject = true
				reached := version("5")
				store := newStore(rvtracker.New(rvtracker.Options{}), controller, map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
				store.ctx, store.prover, store.reports = t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: down}}, NewReporter(events)
				queue := make(chan string, 9)
				store.OnReady(func(key string) { queue <- key })
				owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
				for began := time.Now(); time.Since(began) < 3*reportAfter; {
					require.Error(t, consistency.ProveFresh(consistency.WithOwner(t.Context(), store, owner, "uid"), store, pods))
					if time.Since(began) < reportAfter {
						require.Empty(t, events.Events)
					}
					require.Equal(t, "ns/owner", <-queue)
				}
				require.Len(t, events.Events, 1)
				event := <-events.Events
				require.Contains(t, event, "StaleCache")
				require.Contains(t, event, "put off for 1m")
				require.Contains(t, event, "kind="+kind.Kind)
			})
		})
	}
}

// about notes the objects that events are about.
type about struct {
	record.EventRecorder
	objects []runtime.Object
}

func (a *about) Eventf(object runtime.Object, _, _, _ string, _ ...any) {
	a.objects = append(a.objects, object)
}

// The event of a value that waits is on its object, which a server finds by it: an autoscaler waits under its key on the queue.
func TestTheEventOfAValueIsOnItsObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := &about{}
		store, queue := readingStore(t.Context(), &verdicts{of: map[schema.GroupResource]freshness.Proof{pods: stale}})
		store.name, store.reports = "horizontalpodautoscaler", NewReporter(events)
		for began := time.Now(); time.Since(began) < 2*reportAfter; {
			ctx := consistency.WithReading(t.Context(), store, "ns/a")
			ctx = consistency.WithOwner(ctx, store, types.NamespacedName{Namespace: "ns", Name: "a"}, "uid")
			require.Error(t, consistency.ProvePass(ctx, "", pods))
			require.Equal(t, "ns/a", <-queue)
		}
		require.Equal(t, []runtime.Object{&corev1.ObjectReference{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler", Namespace: "ns", Name: "a", UID: "uid"}}, events.objects)
	})
}

func TestTheLogNamesAFewOfManyWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := 0
		logger := funcr.New(func(_, args string) {
			if strings.Contains(args, "An object is not reconciled") {
				named++
			}
		}, funcr.Options{})
		events := record.NewFakeRecorder(2 * loggedOwners)
		reached := version("5")
		store := newStore(rvtracker.New(rvtracker.Options{}), "daemonset", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: &reached})
		store.ctx, store.prover, store.reports = klog.NewContext(t.Context(), logger), &lateProver{}, NewReporter(events)
		for i := range 2 * loggedOwners {
			owner := types.NamespacedName{Namespace: "ns", Name: strconv.Itoa(i)}
			store.Unsettled(owner, "uid", pods, transport.NeverRetried)
			require.Error(t, store.EnsureReady(owner))
		}
		time.Sleep(reportAfter + 10*time.Second)
		synctest.Wait()
		require.Len(t, events.Events, 2*loggedOwners)
		require.Equal(t, loggedOwners, named)
	})
}
