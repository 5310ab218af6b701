// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness_test

import (
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

//conformance:kep-5504 Motivation: a client can tell whether its cache is behind the server
func TestProofs(t *testing.T) {
	c := startCluster(t, 1)
	c.write(t)

	t.Run("quiet by list", func(t *testing.T) { quiet(t, c, 0, "List") })
	t.Run("quiet by watch", func(t *testing.T) { quiet(t, c, -1, "Watch") })
	t.Run("busy", func(t *testing.T) { busy(t, c) })
	t.Run("shared", func(t *testing.T) { shared(t, c) })
	t.Run("stale by list", func(t *testing.T) { stale(t, c, 0, "List") })
	t.Run("stale by watch", func(t *testing.T) { stale(t, c, -1, "Watch") })
	t.Run("refused", func(t *testing.T) { refused(t, c) })
	t.Run("schedule", func(t *testing.T) { schedule(t, c) })
	t.Run("requests", func(t *testing.T) { requests(t, c) })
}

// quiet: nothing happens to the resource while etcd moves on, so its store stands still.
func quiet(t *testing.T, c *cluster, small int, method string) {
	// Without the bookmarks that come once a minute, so that the store stands still for certain.
	proxy, viaProxy := c.proxy(t)
	_, err := proxy.Inject(faultproxy.Target{Resource: configMaps.GroupResource()}, faultproxy.SuppressBookmarks{})
	require.NoError(t, err)
	informer := c.inform(t, viaProxy, configMaps)
	p := c.prover(t, freshness.Options{SmallCollection: small}, configMaps, informer)
	for i := range 3 {
		c.disturb(t, 5)
		fence, err := p.Fence(t.Context(), configMaps)
		require.NoError(t, err)
		require.False(t, reached(informer, fence.ResourceVersion), "the store was to trail the fence")
		asOf := time.Now()
		proof, took := prove(t, p, configMaps, asOf)
		require.Equal(t, freshness.Proven, proof.Outcome, proof.String())
		require.Equal(t, method, proof.Method)
		require.False(t, proof.At.Before(asOf))
		t.Logf("quiet proof %d by %s: %s, store at %s, fence at %s", i, method, took, storeRV(informer), fence.ResourceVersion)
	}
}

// busy: the cache confirms by events that come anyway.
func busy(t *testing.T, c *cluster) {
	informer := c.inform(t, c.AdminConfig(), configMaps)
	p := c.prover(t, freshness.Options{QPS: 1000, Burst: 1000}, configMaps, informer)
	target := c.write(t)
	waitReached(t, informer, target)
	ns, name, _ := strings.Cut(informer.GetIndexer().ListKeys()[0], "/")
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			patch := []byte(`{"metadata":{"annotations":{"beat":"` + time.Now().String() + `"}}}`)
			if _, err := c.client.CoreV1().ConfigMaps(ns).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writer.Wait()
	defer close(stop)
	var took []time.Duration
	methods := map[string]int{}
	for range 100 {
		proof, d := prove(t, p, configMaps, time.Now())
		require.Equal(t, freshness.Proven, proof.Outcome, proof.String())
		methods[proof.Method]++
		took = append(took, d)
	}
	t.Logf("busy proofs: p50 %s, p99 %s, by %v", quantile(took, 0.5), quantile(took, 0.99), methods)
	require.Less(t, quantile(took, 0.5), 100*time.Millisecond)
}

// shared: a hundred callers with one question cost one fence.
func shared(t *testing.T, c *cluster) {
	informer := c.inform(t, c.AdminConfig(), configMaps)
	p := c.prover(t, freshness.Options{}, configMaps, informer)
	target := c.write(t)
	waitReached(t, informer, target)
	asOf := time.Now()
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			proof, err := p.Prove(t.Context(), configMaps, asOf)
			if err != nil || !proof.Fresh() {
				t.Error(proof, err)
			}
		})
	}
	callers.Wait()
	begin := time.Now()
	for range 1000 {
		proof, err := p.Prove(t.Context(), configMaps, asOf)
		require.NoError(t, err)
		require.Equal(t, "Earlier", proof.Method)
	}
	t.Logf("100 callers at once; a proof that is there already: %s", time.Since(begin)/1000)
}

// stale: the informer's watch is held back by a proxy; the prover asks the apiserver directly.
func stale(t *testing.T, c *cluster, small int, method string) {
	proxy, viaProxy := c.proxy(t)
	informer := c.inform(t, viaProxy, configMaps)
	p := c.prover(t, freshness.Options{SmallCollection: small}, configMaps, informer)
	before, _ := prove(t, p, configMaps, time.Now())
	require.True(t, before.Fresh(), before.String())

	fault, err := proxy.Inject(faultproxy.Target{Resource: configMaps.GroupResource()}, faultproxy.Hold{})
	require.NoError(t, err)
	last := ""
	first := time.Now()
	for range 7 {
		last = c.write(t)
	}
	written := time.Now()
	for range 3 {
		proof, took := prove(t, p, configMaps, written)
		require.Equal(t, freshness.Stale, proof.Outcome, proof.String())
		require.Equal(t, 7, proof.Events)
		require.Equal(t, method, proof.Method)
		require.GreaterOrEqual(t, proof.RVs, uint64(7))
		require.Positive(t, proof.AtLeast)
		require.Less(t, proof.AtLeast, time.Since(first))
		t.Logf("%s after %s", proof, took)
	}
	earlier, _ := prove(t, p, configMaps, before.At)
	require.Equal(t, "Earlier", earlier.Method, "what was proven before the fault stays proven")

	fault.Clear()
	require.NotEmpty(t, fault.Stats().Held.Events, "the fault did nothing")
	waitReached(t, informer, last)
	proof, took := prove(t, p, configMaps, time.Now())
	require.True(t, proof.Fresh(), proof.String())
	t.Logf("proven again after the fault: %s by %s", took, proof.Method)
}

// refused: what the server will not answer is unknown.
func refused(t *testing.T, c *cluster) {
	informer := c.inform(t, c.AdminConfig(), configMaps)
	nobody := rest.AnonymousClientConfig(c.AdminConfig())
	p := c.prover(t, freshness.Options{Config: nobody}, configMaps, informer)
	proof, _ := prove(t, p, configMaps, time.Now())
	require.Equal(t, freshness.Unknown, proof.Outcome)
	require.Equal(t, freshness.ReasonForbidden, proof.Reason, proof.String())

	p = c.prover(t, freshness.Options{}, configMaps, informer)
	none := schema.GroupVersionResource{Version: "v1", Resource: "nothings"}
	_, err := p.Fence(t.Context(), none)
	var failed *freshness.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, freshness.ReasonNotFound, failed.Reason)
}

// schedule: at random the watch is held and let go and objects are written; a proof must never claim a
// cache that lacks a write committed before the time asked for.
func schedule(t *testing.T, c *cluster) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	proxy, viaProxy := c.proxy(t)
	informer := c.inform(t, viaProxy, configMaps)
	small := c.prover(t, freshness.Options{QPS: 1000, Burst: 1000}, configMaps, informer)
	large := c.prover(t, freshness.Options{QPS: 1000, Burst: 1000, SmallCollection: -1}, configMaps, informer)
	var fault *faultproxy.Fault
	committed := ""
	outcomes := map[freshness.Outcome]int{}
	for range 60 {
		switch random.IntN(5) {
		case 0:
			if fault == nil {
				var err error
				fault, err = proxy.Inject(faultproxy.Target{Resource: configMaps.GroupResource()}, faultproxy.Hold{})
				require.NoError(t, err)
			} else {
				fault.Clear()
				fault = nil
			}
		case 1:
			c.disturb(t, 1)
		case 2:
			committed = c.write(t)
		default:
			p := small
			if random.IntN(6) == 0 {
				p = large
			}
			asOf, target := time.Now(), committed
			proof, _ := prove(t, p, configMaps, asOf)
			outcomes[proof.Outcome]++
			if proof.Fresh() && target != "" {
				require.True(t, reached(informer, target), "proven as of a time at which %s was committed, the store is at %s", target, storeRV(informer))
			}
			if fault == nil && target != "" && reached(informer, target) {
				require.NotEqual(t, freshness.Stale, proof.Outcome, proof.String())
			}
		}
	}
	t.Logf("outcomes: %v", outcomes)
	require.Positive(t, outcomes[freshness.Proven])
}

// requests: what the audit log shows of the tests before.
func requests(t *testing.T, c *cluster) {
	kinds := map[string]int{}
	_, err := controlplane.ReadAudit(c.APIServers()[0].AuditLogPath(), 0, func(e controlplane.AuditEvent) {
		if !strings.HasSuffix(e.UserAgent, " freshness") || e.Stage != "ResponseComplete" {
			return
		}
		u, err := url.Parse(e.RequestURI)
		require.NoError(t, err)
		q := u.Query()
		switch e.Verb {
		case "list":
			require.Empty(t, q.Get("resourceVersion"), "a consistent read names no RV")
			kinds["list limit="+q.Get("limit")]++
		case "watch":
			require.Equal(t, "3", q.Get("timeoutSeconds"))
			kinds["watch"]++
		default:
			t.Errorf("unexpected %s %s", e.Verb, e.RequestURI)
		}
	})
	require.NoError(t, err)
	t.Logf("requests: %v", kinds)
	require.Positive(t, kinds["list limit=1"])
	require.Positive(t, kinds["list limit=500"])
	require.Positive(t, kinds["watch"])
}

// TestLaggingAPIServer: the informer hangs on an apiserver that has stopped, the prover asks another.
func TestLaggingAPIServer(t *testing.T) {
	c := startCluster(t, 2)
	lagging := c.APIServers()[1]
	informer := c.inform(t, lagging.AdminConfig(), configMaps)
	p := c.prover(t, freshness.Options{}, configMaps, informer)
	first := c.write(t)
	waitReached(t, informer, first)
	proof, took := prove(t, p, configMaps, time.Now())
	require.True(t, proof.Fresh(), proof.String())
	t.Logf("before: %s in %s", proof, took)

	require.NoError(t, lagging.Pause())
	last := c.write(t)
	c.write(t)
	proof, took = prove(t, p, configMaps, time.Now())
	require.Equal(t, freshness.Stale, proof.Outcome, proof.String())
	require.Equal(t, 2, proof.Events)
	t.Logf("paused: %s after %s", proof, took)
	require.False(t, reached(informer, last))

	require.NoError(t, lagging.Resume())
	waitReached(t, informer, last)
	proof, took = prove(t, p, configMaps, time.Now())
	require.True(t, proof.Fresh(), proof.String())
	t.Logf("resumed: %s in %s", proof, took)

	// The prover's own server stops: nothing can be said.
	mute := c.prover(t, freshness.Options{Config: lagging.AdminConfig(), RequestTimeout: time.Second}, configMaps, informer)
	require.NoError(t, lagging.Pause())
	proof, took = prove(t, mute, configMaps, time.Now())
	require.Equal(t, freshness.Unknown, proof.Outcome, proof.String())
	require.Equal(t, freshness.ReasonTimeout, proof.Reason, proof.String())
	t.Logf("no answer: %s in %s", proof, took)
	require.NoError(t, lagging.Resume())
}
