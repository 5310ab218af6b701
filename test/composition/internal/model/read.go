// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Truth reads the store while the server's lock is held.
type Truth struct{ s *Server }

// Get returns an object, or nil.
func (t Truth) Get(r *Resource, namespace, name string) Object {
	return t.s.stores[r].objects[types.NamespacedName{Namespace: namespace, Name: name}]
}

// List returns all objects of a resource, by namespace and name.
func (t Truth) List(r *Resource) []Object {
	st := t.s.stores[r]
	out := make([]Object, 0, len(st.keys))
	for _, key := range st.keys {
		out = append(out, st.objects[key])
	}
	return out
}

// Owned returns the objects of a resource that an owner controls, by namespace and name.
func (t Truth) Owned(r *Resource, owner Owner) []Object {
	st := t.s.stores[r]
	var out []Object
	for _, key := range slices.SortedFunc(maps.Keys(st.owned[owner]), compareKeys) {
		out = append(out, st.objects[key])
	}
	return out
}

// Look calls f with the truth.
func (s *Server) Look(f func(Truth)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(Truth{s})
}

// DeploymentClient is the name of the client that writes ReplicaSets for Deployments, CronJobClient of the one that writes Jobs for
// CronJobs, SliceClient of the one that writes EndpointSlices for Services, ClaimClient of the one that writes ResourceClaims for pods, AttachClient of the one that
// attaches volumes.
const (
	DeploymentClient = "deployment-controller"
	CronJobClient    = "cronjob-controller"
	SliceClient      = "endpointslice-controller"
	ClaimClient      = "resource-claim-controller"
	AttachClient     = "attachdetach-controller"
)

func (s *Server) ownerOf(r *Request) Owner {
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	ofDeployment := r.Resource == ReplicaSets && strings.Contains(r.Agent, DeploymentClient)
	ofCronJob := r.Resource == Jobs && strings.Contains(r.Agent, CronJobClient)
	ofService := r.Resource == Slices && strings.Contains(r.Agent, SliceClient)
	ofPod := r.Resource == ResourceClaims && r.Verb == "create"
	if r.Resource != Pods && r.Resource != Revisions && !ofDeployment && !ofCronJob && !ofService && !ofPod {
		return Owner{r.Kind, key}
	}
	if (ofCronJob || ofService) && r.Verb != "create" {
		if owned := s.stores[r.Resource].objects[key]; owned != nil {
			return controllerOf(owned)
		}
		return Owner{}
	}
	if r.Verb != "create" {
		return s.owners[key]
	}
	o, err := decode(r.body, nil)
	if err != nil {
		return Owner{}
	}
	object := o.(Object)
	object.SetNamespace(r.Namespace)
	return controllerOf(object)
}

func controllerOf(o Object) Owner {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return Owner{ref.Kind, types.NamespacedName{Namespace: o.GetNamespace(), Name: ref.Name}}
	}
	return Owner{}
}

func notFound(r *Request) error {
	return Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, r.GroupVersionResource.Resource+" \""+r.Name+"\" not found", 0)
}

func (s *Server) get(r *Request) (Object, error) {
	o := s.stores[r.Resource].objects[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}]
	if o == nil {
		return nil, notFound(r)
	}
	return o, nil
}

// progress has the watch cache of a resource know that it has all up to now.
func (st *store) progress(rv int64) {
	st.known, st.knownAt = rv, time.Now()
}

// list is a consistent read, unless any version will do and the apiserver stands still; pages continue at the version of the first.
func (s *Server) list(r *Request) ([]byte, error) {
	st := s.stores[r.Resource]
	st.progress(s.rv)
	selects, err := selector(r)
	if err != nil {
		return nil, err
	}
	token, after, rv := r.query.Get("continue"), types.NamespacedName{}, s.rv
	if st.lagsAt > 0 && r.query.Get("resourceVersion") == "0" {
		rv = st.lagsAt
	}
	if token != "" {
		version, key, _ := strings.Cut(token, ":")
		if rv, err = strconv.ParseInt(version, 10, 64); err != nil || rv < st.compacted {
			return nil, Refuse(http.StatusGone, metav1.StatusReasonExpired, "the provided continue parameter is too old", 0)
		}
		after.Namespace, after.Name, _ = strings.Cut(key, "/")
	}
	limit := int(r.number("limit"))
	var out []Object
	next := ""
	for o := range st.asOf(rv, s.rv) {
		if !selects(o) || token != "" && compareKeys(keyOf(o), after) <= 0 {
			continue
		}
		if limit > 0 && len(out) == limit {
			last := out[len(out)-1]
			next = strconv.FormatInt(rv, 10) + ":" + last.GetNamespace() + "/" + last.GetName()
			break
		}
		out = append(out, o)
	}
	return r.encoding.list(r.Resource, out, metav1.ListMeta{ResourceVersion: strconv.FormatInt(rv, 10), Continue: next}), nil
}

// asOf goes through the objects as they were at a version, by namespace and name.
func (st *store) asOf(rv, now int64) iter.Seq[Object] {
	keys, objects := st.keys, st.objects
	if rv < now {
		objects = map[types.NamespacedName]Object{}
		for _, c := range st.log {
			if c.rv > rv {
				break
			}
			if c.now != nil {
				objects[keyOf(c.now)] = c.now
			} else {
				delete(objects, keyOf(c.last))
			}
		}
		keys = slices.SortedFunc(maps.Keys(objects), compareKeys)
	}
	return func(yield func(Object) bool) {
		for _, key := range keys {
			if !yield(objects[key]) {
				return
			}
		}
	}
}

func keyOf(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// selector knows namespaces, labels, and the field metadata.name.
func selector(r *Request) (func(Object) bool, error) {
	byLabel, err := labels.Parse(r.query.Get("labelSelector"))
	if err != nil {
		return nil, Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
	}
	name, byName := strings.CutPrefix(r.query.Get("fieldSelector"), "metadata.name=")
	if !byName && r.query.Get("fieldSelector") != "" {
		return nil, Refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest, "unknown field selector", 0)
	}
	return func(o Object) bool {
		return (r.Namespace == "" || r.Namespace == o.GetNamespace()) && (!byName || name == o.GetName()) && byLabel.Matches(labels.Set(o.GetLabels()))
	}, nil
}
