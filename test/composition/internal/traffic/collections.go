// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

const (
	// FamilyLabel is on all objects of a family: its name.
	FamilyLabel = "app"
	// remakeEvery is how often somebody looks whether an owner is gone, to make it again.
	remakeEvery = time.Second
)

// plain are the resources of the kinds that no controller is about.
var plain = map[string]*model.Resource{"ConfigMap": model.ConfigMaps, "Widget": model.Widgets}

// FamilyResource is the resource of a family's owner.
func FamilyResource(f schedule.Family) *model.Resource {
	if r := plain[f.Kind]; r != nil {
		return r
	}
	return Kinds[f.Kind]
}

// family is one of a run. Traffic.mu protects it.
type family struct {
	schedule.Family
	// made is how many dependents were.
	made int
	// last and before are the references to its owner, and to the one before that.
	last, before metav1.OwnerReference
}

// startFamilies makes the families of a schedule.
func (t *Traffic) startFamilies(s schedule.Schedule) {
	for i := range s.Families {
		f := &family{Family: s.Families[i]}
		t.families = append(t.families, f)
		t.makeFamily(f)
	}
}

// makeFamily makes an owner and its first dependents.
func (t *Traffic) makeFamily(f *family) bool {
	r, meta := FamilyResource(f.Family), metav1.ObjectMeta{Namespace: Namespace, Name: f.Name, Labels: map[string]string{FamilyLabel: f.Name}}
	var owner model.Object
	switch f.Kind {
	case "ConfigMap":
		owner = &corev1.ConfigMap{ObjectMeta: meta}
	case "Widget":
		owner = &metav1.PartialObjectMetadata{ObjectMeta: meta}
	default:
		_, owner = t.register(schedule.Owner{Kind: f.Kind, Name: f.Name, Replicas: f.Replicas})
		owner.SetLabels(meta.Labels)
	}
	if !t.server.TryCreate(r, owner) {
		return false
	}
	ref := t.referenceTo(r, f.Name)
	ref.BlockOwnerDeletion = &f.Blocking
	t.mu.Lock()
	f.before, f.last = f.last, *ref
	t.mu.Unlock()
	for range f.ConfigMaps {
		t.addDependent(f, "ConfigMap", *ref)
	}
	for range f.Widgets {
		t.addDependent(f, "Widget", *ref)
	}
	return true
}

// referenceTo is a reference to an object that is there and stays, or nil.
func (t *Traffic) referenceTo(r *model.Resource, name string) (ref *metav1.OwnerReference) {
	t.server.Look(func(truth model.Truth) {
		if o := truth.Get(r, Namespace, name); o != nil && o.GetDeletionTimestamp() == nil {
			ref = &metav1.OwnerReference{APIVersion: r.GroupVersion().String(), Kind: r.Kind, Name: name, UID: o.GetUID()}
		}
	})
	return ref
}

// addDependent makes a dependent.
func (t *Traffic) addDependent(f *family, kind string, ref metav1.OwnerReference) {
	t.mu.Lock()
	f.made++
	name := fmt.Sprint(f.Name, "-", strings.ToLower(kind), "-", f.made)
	t.mu.Unlock()
	t.makePlain(f, kind, name, ref)
	if kind == "ConfigMap" && f.Chained {
		if of := t.referenceTo(model.ConfigMaps, name); of != nil {
			of.BlockOwnerDeletion = &f.Blocking
			t.makePlain(f, "Widget", name+"-widget", *of)
		}
	}
}

func (t *Traffic) makePlain(f *family, kind, name string, refs ...metav1.OwnerReference) {
	meta := metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{FamilyLabel: f.Name}, OwnerReferences: refs}
	if kind == "ConfigMap" {
		t.server.TryCreate(model.ConfigMaps, &corev1.ConfigMap{ObjectMeta: meta})
	} else {
		t.server.TryCreate(model.Widgets, &metav1.PartialObjectMetadata{ObjectMeta: meta})
	}
}

// doForFamily does what a step of others' work on a family says. It reports whether the step is one.
func (t *Traffic) doForFamily(s schedule.Step) bool {
	i := slices.IndexFunc(t.families, func(f *family) bool { return f.Name == s.Target })
	if i < 0 {
		return false
	}
	f, next := t.families[i], t.families[(i+1)%len(t.families)]
	r := FamilyResource(f.Family)
	switch s.Action {
	case schedule.RemoveOwner:
		if t.referenceTo(r, f.Name) != nil {
			t.server.DeleteBy(r, Namespace, f.Name, metav1.DeletionPropagation(schedule.Policies[s.N%len(schedule.Policies)]))
			if s.Delay > 0 {
				t.After(s.Delay, func() { t.remake(f) })
			}
		}
	case schedule.AddDependent:
		if ref := t.referenceTo(r, f.Name); ref != nil {
			ref.BlockOwnerDeletion = &f.Blocking
			t.addDependent(f, schedule.Plain[s.N%len(schedule.Plain)], *ref)
		}
	case schedule.OfTheGone:
		if f.before.UID != "" {
			t.addDependent(f, schedule.Plain[s.N%len(schedule.Plain)], f.before)
		}
	case schedule.DropDependent:
		if d := t.dependent(f, s.N, true); d != nil {
			t.server.DeleteBy(plain[d.kind], Namespace, d.GetName(), metav1.DeletePropagationBackground)
		}
	case schedule.RemakeDependent:
		if d := t.dependent(f, s.N, true); d != nil {
			t.server.DeleteBy(plain[d.kind], Namespace, d.GetName(), metav1.DeletePropagationBackground)
			t.makePlain(f, d.kind, d.GetName(), d.GetOwnerReferences()...)
		}
	case schedule.Release:
		t.refer(t.dependent(f, s.N, true), func([]metav1.OwnerReference) []metav1.OwnerReference { return nil })
	case schedule.Adopt:
		if ref := t.referenceTo(r, f.Name); ref != nil {
			t.refer(t.dependent(f, s.N, false), func([]metav1.OwnerReference) []metav1.OwnerReference { return []metav1.OwnerReference{*ref} })
		}
	case schedule.Join, schedule.Move:
		ref := t.referenceTo(FamilyResource(next.Family), next.Name)
		if ref == nil || next == f {
			break
		}
		t.refer(t.dependent(f, s.N, true), func(refs []metav1.OwnerReference) []metav1.OwnerReference {
			if s.Action == schedule.Move {
				refs = nil
			}
			if !slices.ContainsFunc(refs, func(of metav1.OwnerReference) bool { return of.UID == ref.UID }) {
				refs = append(refs, *ref)
			}
			return refs
		})
	case schedule.Block:
		t.refer(t.dependent(f, s.N, true), func(refs []metav1.OwnerReference) []metav1.OwnerReference {
			for i := range refs {
				blocks := refs[i].BlockOwnerDeletion != nil && *refs[i].BlockOwnerDeletion
				refs[i].BlockOwnerDeletion = new(!blocks)
			}
			return refs
		})
	default:
		return false
	}
	return true
}

// remake makes a family's owner again once it is gone.
func (t *Traffic) remake(f *family) {
	if !t.makeFamily(f) {
		t.After(remakeEvery, func() { t.remake(f) })
	}
}

// dependent is an object of one of the kinds that no controller is about.
type dependent struct {
	model.Object
	kind string
	uid  types.UID
}

// dependent is the nth object of a family that stays, that is not its owner and that has an owner or, unless owned, has none.
func (t *Traffic) dependent(f *family, n int, owned bool) *dependent {
	var all []*dependent
	t.server.Look(func(truth model.Truth) {
		for _, kind := range schedule.Plain {
			for _, o := range truth.List(plain[kind]) {
				if o.GetLabels()[FamilyLabel] == f.Name && o.GetName() != f.Name && o.GetDeletionTimestamp() == nil && (len(o.GetOwnerReferences()) > 0) == owned {
					all = append(all, &dependent{o, kind, o.GetUID()})
				}
			}
		}
	})
	if len(all) == 0 {
		return nil
	}
	return all[n%len(all)]
}

// refer changes the owners of a dependent.
func (t *Traffic) refer(d *dependent, change func([]metav1.OwnerReference) []metav1.OwnerReference) {
	if d == nil {
		return
	}
	model.Change(t.server, plain[d.kind], Namespace, d.GetName(), func(o model.Object) {
		if o.GetUID() == d.uid {
			o.SetOwnerReferences(change(o.GetOwnerReferences()))
		}
	})
}
