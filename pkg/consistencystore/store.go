// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/livereads"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

const (
	// ProofAge is how much older than a reconcile a proof of its view may be, except that of the nodes. With it, a
	// proof during which the cache has moved is still of use to the next try.
	ProofAge = 2 * time.Second
	// goOnAfter is for how long nothing could be proven about a resource before deletions go on without a proof.
	goOnAfter = 5 * time.Second
	// aheadLimit is how long a worker waits for proofs before the view. Where proofs are slow and the cache is busy, no other
	// order works.
	aheadLimit = 15 * time.Second
	// lagLimit is for how long a deletion waits, where a cache always lags, for a moment in which what the owner reads stands still.
	lagLimit = 30 * time.Second
	// sameWait is how soon after a wait an owner must ask for a proof again for the wait to continue.
	sameWait = 30 * time.Second
	// handlersAfter is after how long it is looked again whether event handlers that are behind a proven cache have caught up.
	handlersAfter = 100 * time.Millisecond
	// tellEvery is how often the log tells of an action that is put off or goes on, for each cache.
	tellEvery = 10 * time.Second
)

// Store is one controller's consistency store, kept by the shared tracker. It implements
// consistency.ConsistencyStore and what the seam asks for besides: OnReady, ProveFresh and Deleted.
type Store struct {
	*rvtracker.Controller
	name   string
	ctx    context.Context // of the term of leadership
	since  time.Time       // no proof may be older
	prover Prover          // nil: nothing is proven
	live   *Live           // nil: proofs alone count
	caches map[schema.GroupResource]consistency.LastSyncRVGetter
	// register has the prover look at a cache that is followed; nil: it does already.
	register func(resource schema.GroupResource, store cache.Store) error
	// budget is for the guards of disruptive actions; nil: there are none.
	budget *livereads.Budget
	// reports reports long waits; nil: they are not reported.
	reports *Reporter

	tales tales

	mu  sync.Mutex
	add func(key string)
	// untracked are the owners, with their UIDs, for which a write could not be recorded.
	untracked map[types.NamespacedName]types.UID
	// putOffs are the actions of owners that have had no proof since their last wait for one ended.
	putOffs map[types.NamespacedName]*putOff
	// ahead has, for owners whose last view was older than the proof, what to prove before their next view.
	ahead map[types.NamespacedName]*ahead
	// unprovable are the resources about which nothing can be proven, and since when.
	unprovable map[schema.GroupResource]time.Time
	// guards are those of the controller's disruptive actions.
	guards []waiter
	// held are the owners that wait for proofs.
	held *holds
	// followed are caches that the controller reads besides caches.
	followed map[schema.GroupResource]*followed
	// waiting are the values that wait, by the key of their object on the controller's queue, and whether they have waited since the
	// object was last read.
	waiting map[string]map[types.NamespacedName]bool
	// failed are the keys of objects of which a write has failed since they were last read, and whether a wake was left out since: each value
	// that woke its object would cause one more try, and double the queue's backoff.
	failed map[string]bool
	// brief says that a worker waits only briefly for proofs, because many owners are due at the same moment.
	brief bool
	// slow is when a worker last waited briefly for a proof that did not come.
	slow time.Time
	// statuses are the tries of statuses that could not be written while an action of their owner waits; nil: the controller's queue tries them.
	statuses map[types.NamespacedName]*statusTries
	// unsettled are the owners' writes of unknown outcome.
	unsettled unsettledWrites
}

// ahead are resources to prove before an owner's next view, and the proofs. A proof that follows
// the view finds a busy cache further on than the view each time.
type ahead struct {
	resources []schema.GroupResource
	asOf      map[schema.GroupResource]time.Time       // at least
	proofs    map[schema.GroupResource]freshness.Proof // nil: not proven yet
}

// putOff is a hold that puts off an action, while the rest of the reconcile goes on. The hold asks for no proof: the owner comes back
// when one may be possible, and its reconcile asks again, for a proof of what it reads then. So its asOf, unless zero, is the time of the
// slow proofs for which the reconcile did not wait; it stays after the hold has ended.
type putOff struct {
	hold
	ended time.Time
	// counted are the objects from which the value was computed, if they are to be proven as of that moment.
	counted *tally
	// stale is, for each cache that was stale in this wait, when the server had what the first proof found missing.
	stale map[schema.GroupResource]time.Time
	// refuted is the version of the cache that a live read has contradicted, if any.
	refuted string
	// forgotten says that its object is gone, or that it was proven by another reconcile: the wait leaves nothing behind.
	forgotten bool
	// decided says that a live read has decided the action: the end of the wait does not wake the owner.
	decided bool
}

// OnReady sets the function that gets the keys of woken owners.
func (s *Store) OnReady(add func(key string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add = add
}

// EnsureReady returns nil if the owner may be reconciled; see rvtracker.Controller.
func (s *Store) EnsureReady(owner types.NamespacedName) error {
	if err := s.gate(owner); err != nil {
		return err
	}
	s.proveAhead(owner)
	return nil
}

// WroteAt records a write; see rvtracker.Controller. A version that cannot be compared is not waited
// for, so that upstream's expectations stay in force for this owner.
func (s *Store) WroteAt(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, rv string) {
	s.wrote(owner, ownerUID, resource, rv, rvtracker.Sent{})
}

// Wrote records a write by its answer; see rvtracker.Controller. The answer to an update that changed nothing
// has the version that the object had before, and is no write: the cache has the object at just that version.
func (s *Store) Wrote(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, answer metav1.ObjectMeta, sent rvtracker.Sent) {
	if sent.Suspect(answer.ResourceVersion) && s.holds(resource, answer) {
		return
	}
	s.wrote(owner, ownerUID, resource, answer.ResourceVersion, sent)
}

func (s *Store) wrote(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, rv string, sent rvtracker.Sent) {
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		s.Untracked(owner, ownerUID)
	}
	s.Controller.Wrote(owner, ownerUID, resource, rv, sent)
}

// holds reports whether the cache of the resource has an object at just this version.
func (s *Store) holds(resource schema.GroupResource, want metav1.ObjectMeta) bool {
	store, ok := s.caches[resource].(rvtracker.Store)
	if !ok {
		return false
	}
	item, exists, err := store.GetByKey(key(types.NamespacedName{Namespace: want.Namespace, Name: want.Name}))
	if err != nil || !exists {
		return false
	}
	has, err := meta.Accessor(item)
	return err == nil && has.GetUID() == want.UID && has.GetResourceVersion() == want.ResourceVersion
}

// Fenced notes the version of a write, and when it was sent.
func (s *Store) Fenced(resource schema.GroupResource, rv string, sent rvtracker.Sent) {
	if s.prover != nil {
		s.prover.Wrote(resource, rv, sent)
	}
}

// Recorded notes that a write for the owner was recorded, and whether it created something.
func (s *Store) Recorded(owner types.NamespacedName, created bool) {
	metrics.Recorded(s.name)
	if created {
		s.unsettled.created(owner)
	}
}

// Untracked notes that a write for the owner could not be recorded.
func (s *Store) Untracked(owner types.NamespacedName, ownerUID types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.untracked == nil {
		s.untracked = map[types.NamespacedName]types.UID{}
	}
	s.untracked[owner] = ownerUID
}

// Clear forgets the owner if the UID matches or is empty.
func (s *Store) Clear(owner types.NamespacedName, ownerUID types.UID) {
	s.mu.Lock()
	if ownerUID == "" || s.untracked[owner] == ownerUID {
		delete(s.untracked, owner)
	}
	delete(s.putOffs, owner)
	delete(s.ahead, owner)
	delete(s.statuses, owner)
	s.mu.Unlock()
	if s.clearUnsettled(owner, ownerUID) {
		s.wake(owner)
	}
	s.Controller.Clear(owner, ownerUID)
}

// SeenOwnWrites reports, after EnsureReady returned nil, whether every write for the owner was recorded
// and so has been seen.
func (s *Store) SeenOwnWrites(owner types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, untracked := s.untracked[owner]
	return !untracked
}

// wake puts an owner back on its controller's queue, unless the queue's backoff will do that.
func (s *Store) wake(owner types.NamespacedName) {
	key := queueKey(owner)
	s.mu.Lock()
	add := s.add
	_, failed := s.failed[key]
	if failed {
		s.failed[key] = true
	}
	s.mu.Unlock()
	if add != nil && !failed {
		add(key)
	}
}

// key is the owner's work queue key, as cache.MetaNamespaceKeyFunc makes it.
func key(owner types.NamespacedName) string { return cache.ObjectName(owner).String() }

// UnprovenError says why a disruptive action was not taken.
type UnprovenError struct {
	// Owner is the object whose reconcile has to wait.
	Owner types.NamespacedName
	// Proof is what is known about the cache: stale, unknown, or fresh now, but perhaps not
	// when the reconcile read it.
	Proof freshness.Proof

	parked, again bool
}

// Error implements error.
func (e *UnprovenError) Error() string {
	if e.Proof.Fresh() {
		return fmt.Sprintf("%s waits: its cache was proven fresh only after the reconcile had read it; it is read again", e.Owner)
	}
	return fmt.Sprintf("%s waits: its cache is not proven fresh: %s", e.Owner, e.Proof)
}

// Parked is true if the store puts the owner back on the queue when another try may succeed.
func (e *UnprovenError) Parked() bool { return e.parked }

// Again is true if only a newer reading is missing: consistency.Sync reconciles the owner once more, and the store proves all that
// it needs before it reads. The owner is also back on the queue, for a controller that does not return the error.
// Again is false the second time in a row, so that the wait is bounded.
func (e *UnprovenError) Again() bool { return e.again }

// ProveFresh returns nil if the caches of the resources, as the context's reconcile has read them, had all that the server had at most
// ProofAge before the reconcile began; for nodes, all that it had when the reconcile began. For the owner and the pods that it controls
// it is enough that their caches are proven now and still have them as they were read. Otherwise it returns an *UnprovenError
// for the first resource that fails, and the owner comes back to the queue: at once if the cache is proven
// now, else when it has caught up, or after a while. It also returns the error, once, if the reconcile began more than
// ProofAge before the proofs. It waits for proofs for promptly at most; later proofs serve the
// next reconcile. A reconcile gets one answer: a later call returns the same. Without an owner
// nothing can be proven.
func (s *Store) ProveFresh(ctx context.Context, resources ...schema.GroupResource) error {
	if s.prover == nil {
		return nil
	}
	owner, _ := consistency.OwnerFrom(ctx)
	began, ok := owner.View.(*view)
	if !ok {
		return &UnprovenError{}
	}
	began.turn <- struct{}{}
	defer func() { <-began.turn }()
	if began.unproven != nil {
		return began.unproven
	}
	early := s.provenAhead(owner.Name)
	resources = s.needed(resources)
	var open []schema.GroupResource
	for _, resource := range resources {
		if proof := early[resource]; !began.proven[resource] && (began.counts(resource) || !(proof.Fresh() && began.shows(resource, proof))) {
			open = append(open, resource)
		}
	}
	asOf := make(map[schema.GroupResource]time.Time, len(resources))
	for _, resource := range resources {
		asOf[resource] = s.asOf(owner.Name, began.at, began.age(resource))
		if began.counts(resource) {
			asOf[resource] = began.counted.at
		}
	}
	replies, rest := ask(cmp.Or(began.patience, promptly), open, func(resource schema.GroupResource) reply { return s.proveOrRead(ctx, began, resource, asOf[resource]) })
	for _, resource := range open {
		proof, slow := replies[resource].proof, replies[resource].slow
		if replies[resource].shown || proof.Fresh() && began.showsNow(resource, proof) {
			s.provable(resource)
			continue
		}
		if earlier := early[resource]; began.counts(resource) && (slow || proof.Fresh()) && earlier.Fresh() && began.shows(resource, earlier) {
			continue // The proof would come late, or after another change, each time.
		}
		if !slow && s.goOn(ctx, resource, proof) {
			continue
		}
		if proof.Outcome == freshness.Stale && s.caughtUp(owner.Name, began, resource) {
			s.tell(ctx, "A cache keeps lagging: the disruptive action goes on, because the cache has all that the server had when the action was put off", owner.Name, resource, proof)
			continue
		}
		metrics.Unproven(s.name, resource, string(proof.Outcome))
		switch {
		case slow:
			s.wasSlow()
			s.await(ctx, owner.Name, &putOff{hold: hold{resource: resource, proof: proof, asOf: asOf[resource]}, counted: began.counted}, func() (proven bool) {
				if proven = rest(); proven {
					s.proveNextAhead(owner.Name, resources, asOf) // The owner may have to queue for longer than the proofs are valid.
				} else if late, stale := s.shownStale(resource); stale {
					s.prover.Wait(ctx, resource, late)
				} else if s.brief {
					s.prover.Wait(ctx, resource, proof) // It was not slow for long.
				}
				return proven
			})
		case proof.Fresh() && began.behind(resource, early[resource]):
			s.await(ctx, owner.Name, &putOff{hold: hold{resource: resource, proof: proof, handlers: true}}, func() bool {
				select {
				case <-time.After(handlersAfter):
				case <-ctx.Done():
				}
				s.proveNextAhead(owner.Name, notShown(resources, replies), asOf)
				return false
			})
		case proof.Fresh():
			s.proveNextAhead(owner.Name, notShown(resources, replies), asOf)
			s.wake(owner.Name)
		default:
			s.retry(ctx, owner.Name, resource, proof)
		}
		began.unproven = &UnprovenError{Owner: owner.Name, Proof: proof, parked: true, again: proof.Fresh() && early == nil}
		return began.unproven
	}
	if len(open) > 0 && early == nil && time.Since(began.at) > ProofAge {
		// What was read is now older than a proof may be.
		s.proveNextAhead(owner.Name, notShown(resources, replies), asOf)
		s.wake(owner.Name)
		began.unproven = &UnprovenError{Owner: owner.Name, Proof: replies[open[0]].proof, parked: true, again: true}
		return began.unproven
	}
	for _, resource := range resources {
		began.proven[resource] = true
	}
	s.proven(owner.Name)
	return nil
}

// goOn reports whether nothing could be proven about a resource for so long that a deletion goes on without a proof, as on upstream: where
// versions cannot be compared, no proof will ever come.
func (s *Store) goOn(ctx context.Context, resource schema.GroupResource, proof freshness.Proof) bool {
	now := time.Now()
	if !proof.Hopeless(now) {
		s.provable(resource)
		return false
	}
	s.mu.Lock()
	if s.unprovable == nil {
		s.unprovable = map[schema.GroupResource]time.Time{}
	}
	since, known := s.unprovable[resource]
	if !known {
		s.unprovable[resource] = now
	}
	s.mu.Unlock()
	if !known {
		klog.FromContext(ctx).Info("A cache cannot be proven fresh; after a while deletions go on without the proof, as upstream's", "controller", s.name,
			"resource", resource, "in", goOnAfter, "proof", proof.String())
		return false
	}
	return now.Sub(since) >= goOnAfter
}

// caughtUp reports whether what was read has all that the server had when an action of this owner was first put off because the cache was stale. A cache that
// lags all the time, and whose collection changes all the time, is never proven for a later moment. Where what the owner reads of it can be read from the
// server instead, that is given lagLimit.
func (s *Store) caughtUp(owner types.NamespacedName, began *view, resource schema.GroupResource) bool {
	s.mu.Lock()
	r := s.putOffs[owner]
	s.mu.Unlock()
	if r == nil || began.at.Sub(r.ended) > sameWait {
		return false
	}
	since, stale := r.stale[resource]
	if !stale || s.live != nil && began.readable(resource) && began.at.Sub(since) < lagLimit {
		return false
	}
	known, ok := s.prover.Known(resource)
	return ok && !known.At.Before(since) && began.shows(resource, known)
}

// provable notes that a resource can be proven.
func (s *Store) provable(resource schema.GroupResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unprovable, resource)
}

// needed adds, to the caches on which a disruptive action depends, those that were used without a proof after a relist.
func (s *Store) needed(resources []schema.GroupResource) []schema.GroupResource {
	for _, resource := range s.Controller.Unproven() {
		if !slices.Contains(resources, resource) {
			resources = append(slices.Clip(resources), resource)
		}
	}
	return resources
}

// proveNextAhead has the resources proven before the owner's next view, together with those proven before this one.
func (s *Store) proveNextAhead(owner types.NamespacedName, resources []schema.GroupResource, asOf map[schema.GroupResource]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ahead == nil {
		s.ahead = map[types.NamespacedName]*ahead{}
	}
	if earlier := s.ahead[owner]; earlier != nil {
		resources = slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(earlier.resources, resources)), byName))
	}
	s.ahead[owner] = &ahead{resources: resources, asOf: asOf}
}

// notShown are the resources that no live read has shown. The next reconcile reads the others live again, if their proof
// is slow.
func notShown(resources []schema.GroupResource, replies map[schema.GroupResource]reply) []schema.GroupResource {
	return slices.DeleteFunc(slices.Clone(resources), func(r schema.GroupResource) bool { return replies[r].shown })
}

func byName(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }

// proveAhead proves, once and before the view, what the owner's last reconcile asked for. The reconcile asks again for what could not
// be proven within aheadLimit.
func (s *Store) proveAhead(owner types.NamespacedName) {
	s.mu.Lock()
	a := s.ahead[owner]
	if a != nil && a.proofs != nil {
		delete(s.ahead, owner) // That was for the reconcile before this one.
		a = nil
	}
	s.mu.Unlock()
	if a == nil {
		return
	}
	recent := s.asOf(owner, time.Now(), ProofAge)
	replies, _ := ask(aheadLimit, a.resources, func(resource schema.GroupResource) reply {
		asOf := recent
		if asOf.Before(a.asOf[resource]) {
			asOf = a.asOf[resource]
		}
		return reply{proof: s.prover.Prove(s.ctx, resource, asOf)}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	a.proofs = map[schema.GroupResource]freshness.Proof{}
	for resource, reply := range replies {
		a.proofs[resource] = reply.proof
	}
}

// provenAhead is what proveAhead has proven for the current reconcile.
func (s *Store) provenAhead(owner types.NamespacedName) map[schema.GroupResource]freshness.Proof {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.ahead[owner]; a != nil {
		return a.proofs
	}
	return nil
}

// retry puts the owner back on the queue once the cache has what it lacked, or, if that is not known, when the server may
// answer again.
func (s *Store) retry(ctx context.Context, owner types.NamespacedName, resource schema.GroupResource, proof freshness.Proof) {
	s.await(ctx, owner, &putOff{hold: hold{resource: resource, proof: proof}}, func() bool {
		s.prover.Wait(ctx, resource, proof)
		return false
	})
}

// await puts the owner back on the queue when wait returns, which reports whether the caches are proven as of r's asOf.
// An owner has one such wait at a time.
func (s *Store) await(ctx context.Context, owner types.NamespacedName, r *putOff, wait func() (proven bool)) {
	resource, proof, message := r.resource, r.proof, "Put off a disruptive action until a cache is proven fresh"
	if r.handlers {
		message = "Put off a value until the event handlers of a cache have been told all that it has"
	}
	parked, again := s.putOff(owner, r)
	if !parked {
		return
	}
	go func() {
		proven := wait()
		s.mu.Lock()
		s.held.change(func() { s.held.release(stalenessz.ForAction, owner, r.resource) })
		r.ended = time.Now()
		if !proven {
			r.asOf = time.Time{}
		}
		decided := r.decided
		switch {
		case decided:
			s.forget(owner)
		case r.forgotten:
			delete(s.ahead, owner)
		default:
			s.putOffs[owner] = r
		}
		s.mu.Unlock()
		if !decided {
			s.wake(owner)
		}
	}()
	if !again {
		s.tell(ctx, message, owner, resource, proof)
	}
}

// putOff has the owner wait, and reports whether it does: it may wait already. again says that it goes on with an earlier wait.
func (s *Store) putOff(owner types.NamespacedName, r *putOff) (parked, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if earlier := s.held.actionOf(owner); earlier != nil {
		earlier.decided, earlier.forgotten = false, false
		return false, false
	}
	if s.putOffs == nil {
		s.putOffs = map[types.NamespacedName]*putOff{}
	}
	r.reason, r.action, r.since, r.stale = stalenessz.ForAction, r, time.Now(), map[schema.GroupResource]time.Time{}
	if r.proof.Outcome == freshness.Stale {
		r.stale[r.resource] = r.proof.At
	}
	if earlier, ok := s.putOffs[owner]; ok && time.Since(earlier.ended) < sameWait {
		again = true
		r.since, r.refuted = earlier.since, earlier.refuted
		maps.Copy(r.stale, earlier.stale)
	}
	s.held.change(func() { s.held.park(owner, &r.hold) })
	return true, again
}

// tales is when the log last told what of actions, for each cache.
type tales struct {
	mu   sync.Mutex
	told map[tale]told
}

// tale is what the log tells of an action that depends on a cache.
type tale struct {
	message  string
	resource schema.GroupResource
}

// told is when the log last told it, and of how many more actions it was true since.
type told struct {
	at   time.Time
	more int
}

// due reports whether the log is to tell it now, and of how many more actions it was true since it last did.
func (t *tales) due(of tale) (now bool, more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.told[of]
	if t.told == nil {
		t.told = map[tale]told{}
	}
	if time.Since(before.at) < tellEvery {
		t.told[of] = told{at: before.at, more: before.more + 1}
		return false, before.more
	}
	t.told[of] = told{at: time.Now()}
	return true, before.more
}

// tell logs what becomes of an action. Of many it tells of one in tellEvery for each cache, and how many more there were since the last:
// the page and the metrics have all.
func (s *Store) tell(ctx context.Context, message string, owner types.NamespacedName, resource schema.GroupResource, proof freshness.Proof) {
	logger := klog.FromContext(ctx)
	now, more := s.tales.due(tale{message: message, resource: resource})
	if !now {
		logger = logger.V(4)
	}
	logger.Info(message, "controller", s.name, "owner", owner, "resource", resource, "proof", proof.String(), "more", more)
}
