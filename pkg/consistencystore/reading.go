// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

const (
	// briefly is how long a worker waits for the proof of a value.
	briefly = 100 * time.Millisecond
	// slowFor is for how long proofs count as slow after a worker has waited for one that did not come.
	slowFor = time.Second
	// sparedRetry is after how long an object that was spared a try comes back for the first time, each further time after twice as long, up to longestPause.
	sparedRetry = 16 * time.Second
)

// cronJob is the controller whose Jobs are all due at the same moment, and only shortly after it.
const cronJob = "cronjob"

// deploymentStore is the controller of Deployments.
const deploymentStore = "deployment"

// autoscaler is the controller that changes replicas of others' objects, and of its own the status alone.
const autoscaler = "horizontalpodautoscaler"

// Controllers of values whose queue gives an object up, as that of Deployments does.
const (
	serviceCIDRStore = "service-cidr"
	endpointStore    = "endpoint"
)

// Controllers that take off a finalizer, and never give up.
const (
	classProtectionStore    = "volumeattributesclass-protection"
	podGroupProtectionStore = "podgroup-protection"
)

// purpose is for what the controller needs proofs.
func (s *Store) purpose() string {
	switch s.name {
	case "resourcequota":
		return "to lower what is used"
	case autoscaler:
		return "to lower replicas"
	case endpointStore:
		return "to delete Endpoints"
	case deploymentStore:
		return "to start other pods, or to scale a ReplicaSet down or delete it"
	case disruptionStore:
		return "to allow more disruptions"
	case "attachdetach":
		return "to detach volumes by force"
	case cronJob:
		return "to run a Job, or delete one that has finished"
	case "resourceclaim":
		return "to release a claim"
	case serviceCIDRStore, classProtectionStore, podGroupProtectionStore:
		return "to take off a finalizer"
	}
	return "to delete pods"
}

// followed is a cache that a controller reads besides those with which its store was made.
type followed struct {
	consistency.LastSyncRVGetter
	registered bool
}

// Follow implements what consistency.Follow asks for. It costs nothing until a proof of the resource is needed.
func (s *Store) Follow(resource schema.GroupResource, c consistency.LastSyncRVGetter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followed == nil {
		s.followed = map[schema.GroupResource]*followed{}
	}
	if f := s.followed[resource]; f == nil || f.LastSyncRVGetter != c {
		s.followed[resource] = &followed{LastSyncRVGetter: c}
	}
}

// registerFollowed registers a followed cache with the prover. It returns false for a resource without one.
func (s *Store) registerFollowed(ctx context.Context, resource schema.GroupResource) bool {
	s.mu.Lock()
	f := s.followed[resource]
	first := f != nil && !f.registered
	if first {
		f.registered = true
	}
	s.mu.Unlock()
	if store, ok := s.followedStore(f); first && ok && s.register != nil {
		if err := s.register(resource, store); err != nil {
			klog.FromContext(ctx).Error(err, "A cache cannot be proven fresh", "controller", s.name, "resource", resource)
		}
	}
	return f != nil
}

func (*Store) followedStore(f *followed) (cache.Store, bool) {
	if f == nil {
		return nil, false
	}
	if of, ok := f.LastSyncRVGetter.(interface{ Store() cache.Store }); ok { // It is a cache as event handlers were told of it.
		return of.Store(), true
	}
	store, ok := f.LastSyncRVGetter.(cache.Store)
	return store, ok
}

// Reading implements what consistency.WithReading asks for.
func (s *Store) Reading(key string) consistency.Pass {
	s.mu.Lock()
	if f := s.failed[key]; f != nil {
		f.early = false
		if !f.woken {
			f.asked = time.Now()
			if own := !f.due.IsZero() && !f.asked.Before(f.due); own {
				f.due = time.Time{}
			} else {
				f.early = !f.back
			}
		}
		f.since, f.ignored, f.left, f.woken, f.back = false, false, false, false, false
	}
	of := s.waiting[key]
	ahead := slices.Collect(maps.Keys(of))
	for _, owner := range ahead {
		s.decided(key, owner)
	}
	caches := maps.Clone(s.followed)
	s.mu.Unlock()
	var proofs sync.WaitGroup
	for _, owner := range ahead {
		proofs.Go(func() { s.proveAhead(owner) })
	}
	proofs.Wait()
	v := &view{at: time.Now(), patience: s.patience(), versions: make(map[schema.GroupResource]string, len(caches))}
	for resource, c := range caches {
		v.versions[resource] = c.LastStoreSyncResourceVersion()
	}
	return &reading{pass: pass{store: s, view: v, views: map[string]any{}}, key: key}
}

// ForgetReading implements what consistency.ForgetReading asks for.
func (s *Store) ForgetReading(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetReading(key)
}

// forgetReading forgets the object with this key, and what it waits for. mu must be held.
func (s *Store) forgetReading(key string) {
	for owner := range s.waiting[key] {
		delete(s.ahead, owner)
		delete(s.putOffs, owner)
		if r := s.held.actionOf(owner); r != nil {
			r.over = true
			s.held.forget(r)
		}
	}
	delete(s.waiting, key)
	delete(s.failed, key)
}

// reading is what a controller reads from the caches for one object. Each of its values is proven by itself, like an owner with the name
// of the object and the value.
type reading struct {
	pass
	key string
	// wrote says that a write was made for the object. The store's mu guards it.
	wrote bool
}

// waits notes whether a value of the object waits.
func (r *reading) waits(owner types.NamespacedName, is bool) {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.waiting[r.key]
	switch {
	case is && of == nil:
		if s.waiting == nil {
			s.waiting = map[string]map[types.NamespacedName]bool{}
		}
		s.waiting[r.key] = map[types.NamespacedName]bool{owner: !r.wrote}
	case is:
		of[owner] = !r.wrote
	case of != nil:
		if delete(of, owner); len(of) == 0 {
			delete(s.waiting, r.key)
		}
		if hold := s.held.actionOf(owner); hold != nil {
			s.held.forget(hold)
		}
	}
}

// decided notes that a value was published, or an action taken, though it still waits. mu must be held.
func (s *Store) decided(key string, owner types.NamespacedName) {
	if of := s.waiting[key]; of != nil {
		of[owner] = false
	}
}

// Wrote implements what consistency.Wrote asks for. That a status could be written says nothing of the write before it that failed.
func (r *reading) Wrote(failed bool) {
	s := r.store
	s.mu.Lock()
	ignores := !failed && s.ignores(r.key)
	s.mu.Unlock()
	if object, err := cache.ParseObjectName(r.key); !failed && !ignores && (err != nil || !s.refusals.open(types.NamespacedName(object))) {
		s.wakeLeft(r.key) // The client or the controller tried again at once.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if failed {
		s.fails(r.key)
		return
	}
	r.wrote = true
	for owner := range s.waiting[r.key] {
		s.decided(r.key, owner)
	}
}

// failure is what is known of an object of which writes fail. Each value that woke the object would cause one more try, and double the queue's backoff.
type failure struct {
	// since says that one has failed since the object was last read, and left that a wake was left out since.
	since, left bool
	// ignored says that the controller has taken the last one for no failure, since the object was last read.
	ignored bool
	// tries are the readings in a row that had one, but for those that could do no more than wait, and at is when the last had its.
	tries int
	at    time.Time
	// woken says that a value has woken the object since it was last read, and asked is the last reading that no value caused: the queue's
	// backoff or an event did, and upstream would try then.
	woken bool
	asked time.Time
	// due is when the queue brings the object back, zero once it has, and early says that an event had the object read before.
	due   time.Time
	early bool
	// back says that spared has brought the object back since it was last read.
	back bool
	// spared brings the object back once an event had it read, and all that would have been written waited: upstream would have tried, or found nothing to
	// write, and its queue would have forgotten the failures. Ours has kept them, and its backoff may be a quarter of an hour.
	spared *comeback
}

// givesUp reports whether the controller's queue gives an object up after givenUpAfter failures in a row.
func (s *Store) givesUp() bool { return s.name == serviceCIDRStore || s.name == endpointStore }

// spares reports whether an event may have an object of the controller read without a try that follows once its values are proven. Where there is nothing to write but
// one value, its proof has it tried.
func (s *Store) spares() bool {
	return !s.givesUp() && s.name != classProtectionStore && s.name != podGroupProtectionStore
}

// fails notes that a write of the object with this key has failed. mu must be held.
func (s *Store) fails(key string) {
	if s.failed == nil {
		s.failed = map[string]*failure{}
	}
	f := s.failed[key]
	if f == nil {
		f = &failure{}
		s.failed[key] = f
	}
	first := !f.since
	if first {
		f.since = true
		f.tries++
	}
	if f.tries >= givenUpAfter && s.givesUp() {
		s.forgetReading(key) // Until an event: a value must not begin that anew.
		return
	}
	f.at = time.Now()
	if first && !f.due.After(f.at) { // What is due stays so, as on the queue.
		f.due = f.at.Add(queueDelay(f.tries - 1))
	}
	spared := f.spared
	if spared == nil {
		return
	}
	s.comeBack(spared, func() {
		s.mu.Lock()
		add, fails := s.add, s.failed[key] == f && f.spared == spared
		f.back = f.back || fails
		s.mu.Unlock()
		if fails && add != nil {
			add(key)
		}
	})
}

// pauses is for how long the value must not wake its object yet, proven or not, as a write of the object has failed: until the queue's backoff is over, or
// brings the object back, or an event does. A reading that a value has caused, as one that follows the failure at once, does not end it. One that
// has just begun does not either: it tries by itself, and may fail.
func (s *Store) pauses(owner types.NamespacedName, r *putOff) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.failed[queueKey(owner)]
	if f == nil || r.forgotten {
		return 0
	}
	pause := min(statusRetry<<min(f.tries, 20), longestPause+firstPause) // The queue, whose longest delay is longestPause, comes first.
	if s.name == autoscaler {
		pause = longestPause // Its queue brings it back every 15 s.
	}
	left := time.Until(f.at.Add(pause))
	if f.asked.After(f.at) {
		left = min(left, time.Until(f.asked.Add(firstPause)))
	}
	return left
}

// leave leaves a wake to the queue's backoff. If that has not brought the object back a while after it should have, it has counted more failures than these: a
// controller with two queues may work on one object twice at a time, so that a write of one conflicts with that of the other, which succeeds. mu must be held.
func (s *Store) leave(key string, f *failure) {
	if f.left {
		return
	}
	if f.left = true; s.name == autoscaler {
		return // Its queue always brings it back after 15 s.
	}
	due := f.due
	go func() {
		if !s.sleep(time.Until(due.Add(firstPause))) {
			return
		}
		s.mu.Lock()
		add, late := s.add, s.failed[key] == f && f.since && f.left && f.due.Equal(due)
		if late {
			f.left, f.woken = false, true
		}
		s.mu.Unlock()
		if late && add != nil {
			add(key)
		}
	}()
}

// wakeLeft is for an object of which no write has failed after all: values may wake it again, and it makes up for a wake that was left out.
func (s *Store) wakeLeft(key string) {
	s.mu.Lock()
	add, f := s.add, s.failed[key]
	delete(s.failed, key)
	s.mu.Unlock()
	if f != nil && f.left && add != nil {
		add(key)
	}
}

// Undecided implements what consistency.Forget asks for.
func (s *Store) Undecided(key string) bool {
	s.mu.Lock()
	undecided := slices.Contains(slices.Collect(maps.Values(s.waiting[key])), true)
	f := s.failed[key]
	ends := f != nil && !f.ignored && (f.since || !undecided) // Else it has yet to try again, or leaves that to something that changes, see ignores.
	// A comeback may be pending, but none that is due long after a new one.
	if f != nil && !ends && f.early && !f.ignored && s.spares() && (f.spared == nil || f.spared.after > 2*sparedRetry) {
		f.spared = &comeback{after: sparedRetry}
	}
	s.mu.Unlock()
	if ends {
		s.wakeLeft(key)
	}
	return undecided
}

// ownerOf is the name under which a value of the object with this key waits.
func ownerOf(key, action string) string { return strings.TrimSuffix(key+" "+action, " ") }

// queueKey is the key on the controller's queue.
func queueKey(owner types.NamespacedName) string {
	k, _, _ := strings.Cut(key(owner), " ")
	return k
}

// Prove implements consistency.Pass. It proves only resources that are followed. It also returns nil once the value was held back for
// OwnerLimits.
func (r *reading) Prove(ctx context.Context, action string, resources ...schema.GroupResource) error {
	return r.prove(ctx, action, rvtracker.OwnerLimits, resources)
}

// ProveFirst implements what consistency.ProveFirst asks for.
func (r *reading) ProveFirst(ctx context.Context, action string, resources ...schema.GroupResource) error {
	return r.prove(ctx, action, rvtracker.FirstValueLimits, resources)
}

// ProveExact implements what consistency.Dependents asks for: Prove with a proof that is not older than the reading.
func (r *reading) ProveExact(ctx context.Context, action string, resources ...schema.GroupResource) error {
	if r.store.prover != nil {
		r.viewFor(ownerOf(r.key, action), true)
	}
	return r.Prove(ctx, action, resources...)
}

func (r *reading) prove(ctx context.Context, action string, limits rvtracker.Limits, resources []schema.GroupResource) error {
	s := r.store
	if s.prover == nil {
		return nil
	}
	var known []schema.GroupResource
	for _, resource := range resources {
		if s.registerFollowed(ctx, resource) {
			known = append(known, resource)
		}
	}
	if len(known) == 0 {
		return nil
	}
	name := ownerOf(r.key, action)
	owner := types.NamespacedName{Name: name}
	r.viewFor(name, false)
	err := r.pass.Prove(ctx, name, known...)
	r.waits(owner, err != nil)
	var unproven *UnprovenError
	if !errors.As(err, &unproven) || unproven.Again() {
		return err
	}
	waits, stale := s.held.actionOf(owner), false
	if waits == nil || !waits.handlers { // Proofs are not slow because handlers are.
		s.wasSlow()
	}
	for _, resource := range known {
		_, shown := s.shownStale(resource)
		stale = stale || shown
	}
	limit := limits.Of(stale)
	if waits == nil || time.Since(waits.since) < limit {
		return err
	}
	klog.FromContext(ctx).Info("Published a value after the longest wait, though its cache is not proven fresh", "controller", s.name,
		"value", name, "after", limit, "proof", unproven.Proof.String())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decided(r.key, owner)
	return nil
}

// wasSlow notes that a worker has waited for a proof that did not come.
func (s *Store) wasSlow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slow = time.Now()
}

// patience is how long a worker waits for the proof of a value: briefly, because many values that need none may be behind it in the queue.
// Once a proof was slow, the next values do not wait, and come back when they have theirs.
func (s *Store) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.slow) < slowFor {
		return time.Millisecond
	}
	return briefly
}

// shownStale returns the last answer about the resource, and whether the cache counts as stale: it was shown to be, and not proven since, whatever fails
// meanwhile. If nothing shows it again, that ends after [rvtracker.OwnerLimits].
func (s *Store) shownStale(resource schema.GroupResource) (freshness.Proof, bool) {
	answers, ok := s.prover.(*answers)
	if !ok {
		return freshness.Proof{}, false
	}
	answers.mu.Lock()
	defer answers.mu.Unlock()
	return answers.last[resource], time.Since(answers.stale[resource]) < rvtracker.OwnerLimits.Stale
}

// answers keeps the last answer of a prover for each resource, even if no caller has waited for it.
type answers struct {
	Prover
	slow *slowProofs

	mu   sync.Mutex
	last map[schema.GroupResource]freshness.Proof
	// stale is when a cache was last shown to be stale that was not proven since.
	stale map[schema.GroupResource]time.Time
}

func (a *answers) Prove(ctx context.Context, resource schema.GroupResource, asOf time.Time) freshness.Proof {
	asked := time.Now()
	proof := a.Prover.Prove(ctx, resource, asOf)
	if proof.Fresh() && proof.Took(asked) > promptly {
		a.slow.note(resource, proof)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last, a.stale = map[schema.GroupResource]freshness.Proof{}, map[schema.GroupResource]time.Time{}
	}
	a.last[resource] = proof
	switch proof.Outcome {
	case freshness.Stale:
		a.stale[resource] = time.Now()
	case freshness.Proven:
		delete(a.stale, resource)
	}
	return proof
}
