// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package kept

import (
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
)

// foreign are packages whose values are not looked into: API objects and their schemes, the network, the metrics, which
// are counted by the registry, and the test's own server.
var foreign = []string{
	"k8s.io/api/", "k8s.io/apimachinery/pkg/apis/", "k8s.io/apimachinery/pkg/runtime", "k8s.io/apimachinery/pkg/api/", "k8s.io/client-go/rest",
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/metadata/metadata", "k8s.io/component-base/", "github.com/prometheus/", "github.com/go-logr/", "k8s.io/klog", "net/", "crypto/", "reflect",
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model",
}

var object = reflect.TypeFor[runtime.Object]()

// walker goes through everything once.
type walker struct {
	counts Counts
	seen   map[place]struct{}
	skip   map[reflect.Type]bool
	names  map[reflect.Type][]string // of the fields
	todo   []visit
}

type place struct {
	at unsafe.Pointer
	t  reflect.Type
}

// visit is a value that is kept somewhere.
type visit struct {
	v     reflect.Value
	where string
}

// Entries counts what can be reached from parts. Nothing of it may change meanwhile.
func Entries(parts ...any) Counts {
	w := &walker{counts: Counts{}, seen: map[place]struct{}{}, skip: map[reflect.Type]bool{}, names: map[reflect.Type][]string{}}
	for _, part := range parts {
		w.later(reflect.ValueOf(part), "part")
	}
	for len(w.todo) > 0 {
		last := len(w.todo) - 1
		next := w.todo[last]
		w.todo = w.todo[:last]
		w.look(next.v, next.where)
	}
	return w.counts
}

func (w *walker) later(v reflect.Value, where string) {
	if v.IsValid() {
		w.todo = append(w.todo, visit{v, where})
	}
}

// first says that what is at the pointer was not looked at yet.
func (w *walker) first(at unsafe.Pointer, t reflect.Type) bool {
	p := place{at, t}
	if _, seen := w.seen[p]; seen || at == nil {
		return false
	}
	w.seen[p] = struct{}{}
	return true
}

func (w *walker) look(v reflect.Value, where string) {
	if w.skips(v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if w.first(v.UnsafePointer(), v.Type()) {
			w.later(v.Elem(), where)
		}
	case reflect.Interface:
		w.later(v.Elem(), where)
	case reflect.Struct:
		w.fields(v, where)
	case reflect.Map:
		if !w.first(v.UnsafePointer(), v.Type()) {
			return
		}
		w.counts[where] += v.Len()
		if plain(v.Type().Key()) && plain(v.Type().Elem()) {
			return
		}
		for entries := v.MapRange(); entries.Next(); {
			w.later(entries.Key(), where+"[]")
			w.later(entries.Value(), where+"[]")
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 || !w.first(v.UnsafePointer(), v.Type()) {
			return
		}
		w.counts[where] += v.Len()
		w.elements(v, where)
	case reflect.Array:
		w.elements(v, where)
	case reflect.Chan:
		if w.first(v.UnsafePointer(), v.Type()) && v.Len() > 0 {
			w.counts[where] += v.Len()
		}
	}
}

func (w *walker) elements(v reflect.Value, where string) {
	if plain(v.Type().Elem()) {
		return
	}
	for i := range v.Len() {
		w.later(v.Index(i), where+"[]")
	}
}

// fields looks at what a struct has. A sync.Map and an atomic pointer hide it, and an atomic.Int32 is a number of something.
func (w *walker) fields(v reflect.Value, where string) {
	t := v.Type()
	if t == reflect.TypeFor[sync.Map]() {
		if v.CanAddr() {
			(*sync.Map)(unsafe.Pointer(v.UnsafeAddr())).Range(func(key, value any) bool {
				w.counts[where]++
				w.later(reflect.ValueOf(key), where+"[]")
				w.later(reflect.ValueOf(value), where+"[]")
				return true
			})
		}
		return
	}
	if t.PkgPath() == "sync/atomic" && strings.HasPrefix(t.Name(), "Pointer[") {
		to := t.Field(0).Type.Elem() // [0]*T
		if at := v.FieldByName("v").UnsafePointer(); at != nil {
			w.later(reflect.NewAt(to.Elem(), at), where)
		}
		return
	}
	if t == reflect.TypeFor[atomic.Int32]() {
		w.counts[where] += int(v.FieldByName("v").Int())
		return
	}
	names, known := w.names[t]
	if !known && t.Name() != "" {
		for field := range t.Fields() {
			names = append(names, short(t)+"."+field.Name)
		}
		w.names[t] = names
	}
	for i := range t.NumField() {
		name := where
		if t.Name() != "" {
			name = names[i]
		}
		w.later(v.Field(i), name)
	}
}

func (w *walker) skips(t reflect.Type) bool {
	skips, known := w.skip[t]
	if !known {
		skips = skip(t)
		w.skip[t] = skips
	}
	return skips
}

func skip(t reflect.Type) bool {
	if t.Kind() != reflect.Interface && (t.Implements(object) || reflect.PointerTo(t).Implements(object)) {
		return true
	}
	path := t.PkgPath()
	if t.Kind() == reflect.Pointer {
		path = t.Elem().PkgPath()
	}
	for _, prefix := range foreign {
		if strings.HasPrefix(path, prefix) && t.Kind() != reflect.Interface {
			return true
		}
	}
	return false
}

// plain says that nothing can be reached from values of the type.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return false
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if !plain(field.Type) {
				return false
			}
		}
	}
	return true
}

// short is a type's name with the end of its package's path.
func short(t reflect.Type) string {
	path := t.PkgPath()
	if parts := strings.Split(path, "/"); len(parts) > 3 {
		path = strings.Join(parts[len(parts)-3:], "/")
	}
	name, _, _ := strings.Cut(t.Name(), "[")
	return path + "." + name
}
