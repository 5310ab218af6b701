// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// The controllers of ReplicaSets and of ReplicationControllers.
const (
	replicaSetStore            = "replicaset"
	replicationControllerStore = "replicationcontroller"
)

// goesOn has, by controller, the resource of which upstream's reconciles wait for no own write: DaemonSets and StatefulSets not for their revisions, Deployments and
// ReplicationControllers not for themselves. A reconcile that waited for these would hold up the repair of pods for as long as their events are late. So it goes on,
// and only a further write to the resource waits, which would rest on what was before: it would give two revisions one number, or be refused.
var goesOn = map[string]schema.GroupResource{
	daemonSetStore: revisionResource, statefulSetStore: revisionResource,
	deploymentStore: appsv1.Resource("deployments"), replicationControllerStore: corev1.Resource("replicationcontrollers"),
}

// unseen is the last write for an owner to the resource of which its reconcile waits for none. A reconcile that begins when the cache shows it, or another owner of its name,
// removes it.
type unseen struct {
	owner         types.UID
	name, version string
	at            time.Time
	// before says that a reconcile has begun which may not have read it.
	before bool
	// stop ends the wait of a write that has been withheld since, nil if none has.
	stop context.CancelFunc
}

// goesOnAfter reports whether an owner's next reconcile does not wait for a write to the resource.
func (s *Store) goesOnAfter(resource schema.GroupResource) bool {
	return s.goesOn != nil && resource == goesOn[s.name]
}

// wroteUnseen notes a write for which the owner's next reconcile does not wait.
func (s *Store) wroteUnseen(owner types.NamespacedName, uid types.UID, name, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unseen == nil {
		s.unseen = map[types.NamespacedName]*unseen{}
	}
	s.unseen[owner] = &unseen{owner: uid, name: name, version: version, at: time.Now()}
}

// beginUnseen notes that a reconcile of the owner begins.
func (s *Store) beginUnseen(owner types.NamespacedName) {
	cached, _ := s.cached(owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.unseen[owner]
	switch {
	case last == nil:
	case cached != nil && cached.GetUID() != last.owner:
		s.forgetUnseen(owner)
	case s.goesOn.Reached(last.version):
		delete(s.unseen, owner)
	default:
		last.before = true
	}
}

// forgetUnseen forgets the last write for an owner that is gone. The mutex is held.
func (s *Store) forgetUnseen(owner types.NamespacedName) {
	if last := s.unseen[owner]; last != nil && last.stop != nil {
		last.stop()
	}
	delete(s.unseen, owner)
}

// Withholds returns an error if a write must not be sent, because it would change the owner's successor (see [successorError]), because the server has put off one before it, or because the reconcile began when the cache did not
// show an earlier one for the owner, on which it would rest. The rest of the reconcile goes on, and the owner comes back when the cache shows it, or after [rvtracker.OwnerLimits]: then
// the write is sent, as on upstream. A revision that is made once more is there, and its controller reads it. sent is the object in the request.
func (s *Store) Withholds(owner types.NamespacedName, ownerUID types.UID, what transport.Write, sent func() metav1.ObjectMeta) (there bool, err error) {
	if err := s.checkSuccessor(owner, ownerUID, what, sent); err != nil {
		return false, err
	}
	if err := s.checkPutOff(owner, what); err != nil {
		return false, err
	}
	if !s.goesOnAfter(what.Resource) {
		return false, nil
	}
	s.mu.Lock()
	last := s.unseen[owner]
	withholds := last != nil && last.before
	s.mu.Unlock()
	if !withholds {
		return false, nil
	}
	object := sent()
	if what.Resource == revisionResource {
		if what.Method == http.MethodPost && object.Name == last.name {
			return true, nil
		}
	} else if object.ResourceVersion == "" || freshness.Passed(object.ResourceVersion, last.version) {
		return false, nil // It rests on what was read from the server.
	}
	h := &hold{reason: stalenessz.ForUnseen, resource: what.Resource, since: last.at}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last.stop == nil {
		ctx, cancel := context.WithDeadline(s.ctx, last.at.Add(rvtracker.OwnerLimits.Stale))
		last.stop = cancel
		s.held.change(func() { s.held.park(owner, h) })
		go s.awaitUnseen(ctx, owner, last, h)
	}
	return false, &heldError{owner: owner, hold: *h}
}

// awaitUnseen has the owner come back when the cache shows the write, or the context ends.
func (s *Store) awaitUnseen(ctx context.Context, owner types.NamespacedName, last *unseen, h *hold) {
	defer last.stop()
	_ = s.goesOn.Wait(ctx, last.version) // An error says that it will not come, or did not come in time.
	s.mu.Lock()
	if s.unseen[owner] == last {
		delete(s.unseen, owner)
	}
	s.mu.Unlock()
	s.held.change(func() { s.held.release(h.reason, owner, h.resource) })
	if s.ctx.Err() == nil {
		s.wake(owner)
	}
}
