// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// write makes a client's write and returns the answer's body.
func (s *Server) write(r *Request) ([]byte, error) {
	if r.query.Has("dryRun") {
		return nil, Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "dry run is not modelled", 0)
	}
	switch r.Verb {
	case "create":
		return s.create(r)
	case "delete":
		return s.delete(r)
	case "deletecollection":
		return s.deleteAll(r)
	}
	old, err := s.get(r)
	if err != nil {
		return nil, err
	}
	if r.Resource == Widgets && types.PatchType(r.contentType) == types.StrategicMergePatchType {
		return nil, Refuse(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "a custom resource has no strategic merge patch", 0)
	}
	var changed Object
	if r.Verb == "update" {
		o, err := decode(r.body, nil)
		if err != nil {
			return nil, Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
		}
		changed = o.(Object)
	} else if changed, err = r.patched(old); err != nil {
		return nil, Refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error(), 0)
	}
	if rv := changed.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() || changed.GetUID() != "" && changed.GetUID() != old.GetUID() {
		return nil, Refuse(http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified", 0)
	}
	switch {
	case r.Subresource == scaleOf:
		if changed, err = rescaled(old, changed); err != nil {
			return nil, err
		}
		return r.scale(s.update(r.Resource, old, changed))
	case r.Subresource == "status":
		status := changed
		changed = old.DeepCopyObject().(Object)
		keep(changed, status, "Status")
		if r.Resource == Deployments { // Its controller writes the revision with the status.
			changed.SetAnnotations(status.GetAnnotations())
		}
	default:
		keep(changed, old, "Status")
		if namespace, ok := changed.(*corev1.Namespace); ok && r.Subresource != "finalize" {
			namespace.Spec.Finalizers = old.(*corev1.Namespace).Spec.Finalizers
		}
	}
	return r.encoding.object(s.update(r.Resource, old, changed)), nil
}

// patched applies a strategic merge patch, or a merge patch. What the only manager of some fields applies is merged, too.
func (r *Request) patched(old Object) (Object, error) {
	original, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	out := reflect.New(r.object).Interface().(Object)
	var data []byte
	switch types.PatchType(r.contentType) {
	case types.StrategicMergePatchType, types.ApplyYAMLPatchType:
		data, err = strategicpatch.StrategicMergePatch(original, r.body, out)
	case types.MergePatchType:
		data, err = jsonpatch.MergePatch(original, r.body)
	default:
		err = fmt.Errorf("patches of type %q are not modelled", r.contentType)
	}
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(data, out)
}

func (s *Server) create(r *Request) ([]byte, error) {
	decoded, err := decode(r.body, nil)
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
	}
	o := decoded.(Object)
	if o.GetNamespace() == "" {
		o.SetNamespace(r.Namespace)
	}
	if err := s.mayCreateIn(o.GetNamespace()); err != nil {
		return nil, err
	}
	if err := s.admit(r.Resource, o); err != nil {
		return nil, err
	}
	return r.encoding.object(o), nil
}

// insert adds an object, which belongs to the server from then on.
func (s *Server) insert(r *Resource, o Object) error {
	s.n++
	if o.GetName() == "" {
		o.SetName(fmt.Sprintf("%s%05d", o.GetGenerateName(), s.n))
	}
	st, key := s.stores[r], keyOf(o)
	if st.objects[key] != nil {
		return Refuse(http.StatusConflict, metav1.StatusReasonAlreadyExists, key.String()+" already exists", 0)
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.n)))
	}
	switch o := o.(type) {
	case *corev1.Pod:
		o.Status.Phase = corev1.PodPending
	case *batchv1.Job:
		setJobDefaults(o)
	}
	if namespace, ok := o.(*corev1.Namespace); ok {
		namespace.Spec.Finalizers, namespace.Status.Phase = []corev1.FinalizerName{corev1.FinalizerKubernetes}, corev1.NamespaceActive
	}
	o.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	o.SetGeneration(1)
	i, _ := slices.BinarySearchFunc(st.keys, key, compareKeys)
	st.keys = slices.Insert(st.keys, i, key)
	s.owners[key] = controllerOf(o)
	s.commit(st, nil, o, nil)
	return nil
}

// same says that two values are the same on the wire.
func same(a, b any) bool {
	type marshaler interface{ Marshal() ([]byte, error) }
	one, err := a.(marshaler).Marshal()
	if err != nil {
		panic(err)
	}
	other, err := b.(marshaler).Marshal()
	if err != nil {
		panic(err)
	}
	return bytes.Equal(one, other)
}

// update puts changed in the place of old, unless they are equal. An object that was only waiting for its last
// finalizer goes.
func (s *Server) update(r *Resource, old, changed Object) Object {
	changed.GetObjectKind().SetGroupVersionKind(r.gvk())
	changed.SetResourceVersion(old.GetResourceVersion())
	changed.SetUID(old.GetUID())
	changed.SetCreationTimestamp(old.GetCreationTimestamp())
	changed.SetGeneration(old.GetGeneration())
	changed.SetManagedFields(nil)
	changed.SetDeletionTimestamp(old.GetDeletionTimestamp())
	changed.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	if same(old, changed) {
		return old
	}
	if before, now := field(old, "Spec"), field(changed, "Spec"); before.IsValid() && !same(before.Addr().Interface(), now.Addr().Interface()) {
		changed.SetGeneration(old.GetGeneration() + 1)
	} else if r == Slices { // which have no spec
		changed.SetGeneration(old.GetGeneration() + 1)
	}
	st := s.stores[r]
	s.commit(st, old, changed, nil)
	if grace := changed.GetDeletionGracePeriodSeconds(); changed.GetDeletionTimestamp() != nil && !finalizing(changed) && (grace == nil || *grace == 0) {
		s.remove(st, changed)
	}
	return changed
}

func (s *Server) delete(r *Request) ([]byte, error) {
	o, err := s.get(r)
	if err != nil {
		return nil, err
	}
	opts, err := r.deleteOptions()
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
	}
	if !meets(opts, o) {
		return nil, Refuse(http.StatusConflict, metav1.StatusReasonConflict, "the preconditions do not hold", 0)
	}
	if left := s.terminate(r.Resource, o, opts.GracePeriodSeconds, opts.PropagationPolicy); left != nil {
		return r.encoding.object(left), nil
	}
	status := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: r.Name, Group: r.Group, Kind: r.GroupVersionResource.Resource, UID: o.GetUID()}}
	status.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("Status"))
	status.APIVersion = "v1"
	return r.encoding.encode(status), nil
}

func (r *Request) deleteOptions() (*metav1.DeleteOptions, error) {
	if len(r.body) == 0 {
		return &metav1.DeleteOptions{}, nil
	}
	decoded, err := decode(r.body, nil)
	if err != nil {
		return nil, err
	}
	return decoded.(*metav1.DeleteOptions), nil
}

// Deletes says that the server will not refuse a delete because it is meant for an object before this one.
func (r *Request) Deletes(o Object) bool {
	opts, err := r.deleteOptions()
	return r.Verb == "delete" && err == nil && meets(opts, o)
}

func meets(opts *metav1.DeleteOptions, o Object) bool {
	p := opts.Preconditions
	return p == nil || (p.UID == nil || *p.UID == o.GetUID()) && (p.ResourceVersion == nil || *p.ResourceVersion == o.GetResourceVersion())
}

// propagated are an object's finalizers once it is to be deleted with what is to become of its dependents. Unless that is said, they stay.
func propagated(o Object, policy *metav1.DeletionPropagation) []string {
	if policy == nil {
		return o.GetFinalizers()
	}
	out := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	switch *policy {
	case metav1.DeletePropagationOrphan:
		out = append(out, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		out = append(out, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationBackground:
	}
	return out
}

// terminate begins to delete an object, or deletes it. It returns what the answer shows, if it is the object.
func (s *Server) terminate(r *Resource, old Object, seconds *int64, policy *metav1.DeletionPropagation) Object {
	o := old
	if finalizers := propagated(old, policy); !slices.Equal(finalizers, old.GetFinalizers()) {
		o = old.DeepCopyObject().(Object)
		o.SetFinalizers(finalizers)
	}
	grace := int64(0)
	if pod, ok := o.(*corev1.Pod); ok && r.Grace && pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded {
		grace = 30
		if seconds != nil {
			grace = *seconds
		}
	}
	if grace == 0 && !finalizing(o) {
		last := s.remove(s.stores[r], old)
		if r.Grace {
			return last // as the store of pods does
		}
		return nil
	}
	if o.GetDeletionTimestamp() != nil && (o.GetDeletionGracePeriodSeconds() == nil || *o.GetDeletionGracePeriodSeconds() <= grace) {
		if o != old {
			s.commit(s.stores[r], old, o, nil)
		}
		return o
	}
	changed := o.DeepCopyObject().(Object)
	changed.SetDeletionTimestamp(new(metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second)).Rfc3339Copy()))
	changed.SetDeletionGracePeriodSeconds(&grace)
	changed.SetGeneration(o.GetGeneration() + 1)
	if namespace, ok := changed.(*corev1.Namespace); ok {
		namespace.Status.Phase = corev1.NamespaceTerminating
	}
	s.commit(s.stores[r], old, changed, nil)
	return changed
}

func (s *Server) remove(st *store, o Object) Object {
	last := o.DeepCopyObject().(Object)
	key := keyOf(o)
	if i, found := slices.BinarySearchFunc(st.keys, key, compareKeys); found {
		st.keys = slices.Delete(st.keys, i, i+1)
	}
	s.commit(st, o, nil, last)
	return last
}

// commit gives a change its version and tells everybody.
func (s *Server) commit(st *store, old, now, last Object) {
	s.rv++
	version := strconv.FormatInt(s.rv, 10)
	if now != nil {
		now.GetObjectKind().SetGroupVersionKind(st.gvk())
		now.SetResourceVersion(version)
		st.objects[keyOf(now)] = now
	} else {
		last.SetResourceVersion(version)
		delete(st.objects, keyOf(last))
	}
	st.own(old, now)
	st.log = append(st.log, change{rv: s.rv, at: time.Now(), old: old, now: now, last: last})
	st.known, st.knownAt = s.rv, time.Now()
	for w := range st.streams {
		w.wake()
	}
	if s.Changed != nil {
		s.Changed(Truth{s}, st.Resource, old, now)
	}
}

// own keeps in mind who controls what.
func (st *store) own(old, now Object) {
	var before, after Owner
	if old != nil {
		before = controllerOf(old)
	}
	if now != nil {
		after = controllerOf(now)
	}
	if before == after {
		return
	}
	if before != (Owner{}) {
		if delete(st.owned[before], keyOf(old)); len(st.owned[before]) == 0 {
			delete(st.owned, before)
		}
	}
	if after != (Owner{}) {
		if st.owned[after] == nil {
			st.owned[after] = map[types.NamespacedName]struct{}{}
		}
		st.owned[after][keyOf(now)] = struct{}{}
	}
}

// Create adds an object, without a request.
func (s *Server) Create(r *Resource, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.insert(r, o.DeepCopyObject().(Object)); err != nil {
		panic(err)
	}
}

// TryCreate is Create for an object that quotas may refuse, or that there may be already. It reports whether it was made.
func (s *Server) TryCreate(r *Resource, o Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admit(r, o.DeepCopyObject().(Object)) == nil
}

// Change changes an object that is there, without a request, and reports whether it is.
func Change[O Object](s *Server, r *Resource, namespace, name string, change func(O)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.stores[r].objects[types.NamespacedName{Namespace: namespace, Name: name}]
	if old == nil {
		return false
	}
	changed := old.DeepCopyObject().(O)
	change(changed)
	s.update(r, old, changed)
	return true
}

// Delete deletes an object, without a request: with seconds of grace, or by its default.
func (s *Server) Delete(r *Resource, namespace, name string, seconds *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.stores[r].objects[types.NamespacedName{Namespace: namespace, Name: name}]; o != nil {
		s.terminate(r, o, seconds, nil)
	}
}

// DeleteBy is Delete that says what is to become of the dependents.
func (s *Server) DeleteBy(r *Resource, namespace, name string, policy metav1.DeletionPropagation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.stores[r].objects[types.NamespacedName{Namespace: namespace, Name: name}]; o != nil {
		s.terminate(r, o, nil, &policy)
	}
}
