// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

var (
	pods  = schema.GroupResource{Resource: "pods"}
	nodes = schema.GroupResource{Resource: "nodes"}
)

// provenOver says what is proven of each resource so long after it began.
type provenOver struct {
	began time.Time
	of    map[schema.GroupResource]func(after time.Duration) freshness.Proof
	asked atomic.Int32
}

// never has a request hang.
var never = freshness.Proof{Outcome: "never"}

func (p *provenOver) prove(ctx context.Context, resource schema.GroupResource, _ time.Time) freshness.Proof {
	p.asked.Add(1)
	proof := p.of[resource](time.Since(p.began))
	proof.Resource = resource.WithVersion("v1")
	if proof.Outcome == never.Outcome {
		<-ctx.Done()
		proof.Outcome, proof.Reason = freshness.Unknown, freshness.ReasonTimeout
	}
	return proof
}

func (*provenOver) wait(ctx context.Context, _ schema.GroupResource, _ freshness.Proof) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

func always(proof freshness.Proof) func(time.Duration) freshness.Proof {
	return func(time.Duration) freshness.Proof { return proof }
}

// until is one proof before a time, and another from then on.
func until(limit time.Duration, before, then freshness.Proof) func(time.Duration) freshness.Proof {
	return func(after time.Duration) freshness.Proof {
		if after < limit {
			return before
		}
		return then
	}
}

func unknownFor(reason freshness.Reason) freshness.Proof {
	return freshness.Proof{Outcome: freshness.Unknown, Reason: reason}
}

// starting has informers of pods and nodes whose caches are proven so, and controllers that wait for them.
type starting struct {
	*StartInformers
	prover *provenOver
	errors []string
	// answer is how long fences take.
	answer time.Duration
}

func (s *starting) fenced(ctx context.Context) {
	if s.answer == 0 {
		return // See slowServer in package wiring: no timer that is due at once.
	}
	select {
	case <-ctx.Done():
	case <-time.After(s.answer):
	}
}

func startingWith(t *testing.T, podsProven, nodesProven func(time.Duration) freshness.Proof, register func() error) *starting {
	s := &starting{prover: &provenOver{began: time.Now(), of: map[schema.GroupResource]func(time.Duration) freshness.Proof{pods: podsProven, nodes: nodesProven}}}
	logger := funcr.New(func(_, args string) { s.errors = append(s.errors, args) }, funcr.Options{Verbosity: -1})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	if register == nil {
		register = func() error { return nil }
	}
	s.StartInformers = NewStartInformers(ctx, informers.NewSharedInformerFactory(fake.NewClientset(), 0), StartOptions{
		Prove: s.prover.prove, Wait: s.prover.wait, Mapper: mapper, Since: time.Now(),
		Register: func(context.Context, schema.GroupResource, cache.Store) error { return register() },
		Fenced:   s.fenced,
		Waits:    func(controller string) bool { return controller != "exempt" },
	})
	t.Cleanup(func() {
		cancel()
		s.Shutdown()
	})
	return s
}

// The bounds of what is waited for, and that it ends at once when there is a proof, or never will be one.
//
//conformance:kep-5647 Risks and Mitigations: after a restart a controller sees a consistent world: most wait until their caches are proven
func TestControllersStartOnceTheirCachesAreProven(t *testing.T) {
	proven, stale := freshness.Proof{Outcome: freshness.Proven}, freshness.Proof{Outcome: freshness.Stale, ResourceVersion: "9"}
	unknown := unknownFor(freshness.ReasonTimeout)
	broken, mended := errors.New("discovery fails"), time.Duration(0)
	for name, c := range map[string]struct {
		proven   func(time.Duration) freshness.Proof
		register func(after time.Duration) error
		from, to time.Duration
		without  bool
	}{
		"proven at once":                    {proven: always(proven), to: 0},
		"unknown for 3 s":                   {proven: until(3*time.Second, unknown, proven), from: 3 * time.Second, to: 4 * time.Second},
		"unknown without end":               {proven: always(unknown), from: 10 * time.Second, to: 10 * time.Second, without: true},
		"a request that hangs":              {proven: always(never), from: 10 * time.Second, to: 10 * time.Second, without: true},
		"refused without end":               {proven: always(unknownFor(freshness.ReasonForbidden)), from: 10 * time.Second, to: 10 * time.Second, without: true},
		"stale for 30 s":                    {proven: until(30*time.Second, stale, proven), from: 30 * time.Second, to: 32 * time.Second},
		"stale without end":                 {proven: always(stale), from: time.Minute, to: time.Minute, without: true},
		"stale after 8 s of nothing":        {proven: until(8*time.Second, unknown, stale), from: time.Minute, to: time.Minute, without: true},
		"stale, then nothing more is known": {proven: until(5*time.Second, stale, unknown), from: time.Minute, to: time.Minute, without: true},
		"stale, then requests hang":         {proven: until(5*time.Second, stale, never), from: time.Minute, to: time.Minute, without: true},
		"versions that cannot be compared":  {proven: always(unknownFor(freshness.ReasonIncomparable)), without: true},
		"no such resource":                  {proven: always(unknownFor(freshness.ReasonNotFound)), without: true},
		"no mapping without end":            {proven: always(proven), register: func(time.Duration) error { return broken }, from: 10 * time.Second, to: 11 * time.Second, without: true},
		"no mapping for a time":             {proven: always(proven), register: func(after time.Duration) error { return map[bool]error{true: broken}[after < 3*time.Second] }, from: 3 * time.Second, to: 4 * time.Second},
		"the server has no such resource": {proven: always(proven), register: func(time.Duration) error {
			return &meta.NoResourceMatchError{PartialResource: pods.WithVersion("")}
		}, to: mended, without: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := startingWith(t, c.proven, always(proven), func() error {
					if c.register == nil {
						return nil
					}
					return c.register(time.Since(began))
				})
				informer := s.ForController("podgc").Core().V1().Pods().Informer()
				registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{})
				require.NoError(t, err)
				require.False(t, informer.HasSynced())
				s.Start(t.Context().Done())
				synctest.Wait()
				require.True(t, s.Core().V1().Pods().Informer().HasSynced(), "who asks the factory does not wait")
				require.True(t, s.ForController("exempt").Core().V1().Pods().Informer().HasSynced())
				synced := []func() bool{informer.HasSynced, registration.HasSynced, informer.GetController().HasSynced}
				checkers := []cache.DoneChecker{informer.HasSyncedChecker(), registration.HasSyncedChecker(), informer.GetController().HasSyncedChecker()}
				if c.from > 0 {
					time.Sleep(c.from - time.Since(began) - time.Millisecond)
					synctest.Wait()
					require.False(t, slices.ContainsFunc(synced, func(f func() bool) bool { return f() }), "not before %v", c.from)
					require.False(t, slices.ContainsFunc(checkers, cache.IsDone))
				}
				require.True(t, cache.WaitFor(t.Context(), "", checkers...))
				require.LessOrEqual(t, time.Since(began), c.to)
				for _, f := range synced {
					require.True(t, f())
				}
				require.NoError(t, informer.RemoveEventHandler(registration))
				if c.without {
					require.Len(t, s.errors, 1, "it is said once")
					require.Contains(t, s.errors[0], "podgc")
				} else {
					require.Empty(t, s.errors)
				}
				require.Less(t, s.prover.asked.Load(), int32(70), "no more than once a second")
			})
		})
	}
}

// What one cache lacks holds up only the controllers that read it, and the page names them.
func TestEachCacheIsWaitedForByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startingWith(t, always(freshness.Proof{Outcome: freshness.Stale, ResourceVersion: "9"}), always(freshness.Proof{Outcome: freshness.Proven}), nil)
		for _, controller := range []string{"podgc", "endpointslice", "podgc"} {
			s.ForController(controller).Core().V1().Pods().Informer()
		}
		ttl := s.ForController("ttl").Core().V1().Nodes()
		ttl.Lister()
		page := func() []stalenessz.Wait {
			var out stalenessz.Longest
			s.Waits(&out)
			return out.Rows()
		}
		require.Empty(t, page(), "nothing has synced yet")
		s.Start(t.Context().Done())
		time.Sleep(20 * time.Second)
		require.True(t, ttl.Informer().HasSynced())
		require.False(t, s.ForController("endpointslice").Core().V1().Pods().Informer().HasSynced())
		var waiting []string
		for _, wait := range page() {
			require.Equal(t, pods, wait.Resource)
			waiting = append(waiting, wait.Controller)
		}
		slices.Sort(waiting)
		require.Equal(t, []string{"endpointslice", "podgc"}, waiting)
		time.Sleep(41 * time.Second)
		require.Empty(t, page())
	})
}

// Informers start when the fences before their first lists are answered, or after a while without.
func TestInformersStartAfterTheirFences(t *testing.T) {
	for answer, want := range map[time.Duration]time.Duration{0: 0, 100 * time.Millisecond: 100 * time.Millisecond, 2 * time.Second: startFences} {
		synctest.Test(t, func(t *testing.T) {
			s := startingWith(t, always(freshness.Proof{Outcome: freshness.Proven}), always(freshness.Proof{Outcome: freshness.Proven}), nil)
			s.answer = answer
			factory := s.ForController("podgc")
			factory.Core().V1().Pods().Informer()
			factory.Core().V1().Nodes().Informer()
			began := time.Now()
			s.Start(t.Context().Done())
			require.Equal(t, want, time.Since(began))
		})
	}
}

// A fence is waited for from when its resource is known; that is part of the same time.
func TestInformersStartThoughMappingsAreSlow(t *testing.T) {
	for mapping, want := range map[time.Duration]time.Duration{300 * time.Millisecond: 400 * time.Millisecond, 450 * time.Millisecond: startFences, time.Second: startFences} {
		synctest.Test(t, func(t *testing.T) {
			s := startingWith(t, always(freshness.Proof{Outcome: freshness.Proven}), always(freshness.Proof{Outcome: freshness.Proven}), func() error {
				time.Sleep(mapping)
				return nil
			})
			s.answer = 100 * time.Millisecond
			s.ForController("podgc").Core().V1().Pods().Informer()
			began := time.Now()
			s.Start(t.Context().Done())
			require.Equal(t, want, time.Since(began))
			time.Sleep(time.Second)
		})
	}
}
