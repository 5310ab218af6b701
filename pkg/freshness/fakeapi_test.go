// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// change is one entry of the server's history of the resource.
type change struct {
	rv      int
	key     string
	uid     types.UID
	deleted bool
}

// fakeAPI serves one collection in the real wire format. It keeps the whole history.
type fakeAPI struct {
	mu       sync.Mutex
	rv       int
	history  []change
	requests []*http.Request

	json        bool                                              // render JSON only
	whole       bool                                              // render whole objects: unaware of "as="
	format      func(int) string                                  // of RVs
	answer      func(w http.ResponseWriter, r *http.Request) bool // may answer itself
	arrived     func(r *http.Request)                             // called before a request is answered, unlocked
	answered    func(r *http.Request)                             // the state is read, the answer not yet sent
	late        time.Duration                                     // by which all of a watch comes late
	bookmarkAt  time.Duration                                     // when a watch gets its bookmark; 0 for never
	compactedTo int
	alwaysRV    func() int // what lists claim
}

func (a *fakeAPI) bump(n int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rv += n
	return a.rv
}

// write commits a change and returns its RV.
func (a *fakeAPI) write(key string, uid types.UID, deleted bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rv++
	a.history = append(a.history, change{a.rv, key, uid, deleted})
	return a.rv
}

func stateAt(history []change, rv int) map[string]change {
	state := map[string]change{}
	for _, c := range history {
		if c.rv > rv {
			break
		}
		if c.deleted {
			delete(state, c.key)
		} else {
			state[c.key] = c
		}
	}
	return state
}

func (a *fakeAPI) snapshot() ([]change, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.history), a.rv
}

func (a *fakeAPI) text(rv int) string {
	if a.format != nil {
		return a.format(rv)
	}
	return strconv.Itoa(rv)
}

func (a *fakeAPI) count(match func(*http.Request) bool) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, r := range a.requests {
		if match(r) {
			n++
		}
	}
	return n
}

func isFence(r *http.Request) bool { return r.URL.Query().Get("limit") == "1" }
func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") == "true" }
func isList(r *http.Request) bool  { return !isFence(r) && !isWatch(r) }

func (a *fakeAPI) object(c change) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.APIVersion, o.Kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	if a.whole {
		o.APIVersion, o.Kind = "coordination.k8s.io/v1", "Lease"
	}
	ns, name, namespaced := strings.Cut(c.key, "/")
	if !namespaced {
		ns, name = "", ns
	}
	o.Namespace, o.Name = ns, name
	o.UID, o.ResourceVersion = c.uid, a.text(c.rv)
	return o
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.requests = append(a.requests, r)
	arrived, answer := a.arrived, a.answer
	a.mu.Unlock()
	if arrived != nil {
		arrived(r)
	}
	if answer != nil && answer(w, r) {
		return
	}
	if isWatch(r) {
		a.serveWatch(w, r)
		return
	}
	history, rv := a.snapshot()
	token := r.URL.Query().Get("continue")
	from := ""
	if token != "" {
		at, last, _ := strings.Cut(token, "|")
		rv, _ = strconv.Atoi(at)
		from = last
	}
	if a.answered != nil {
		a.answered(r)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.APIVersion, list.Kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
	if a.whole {
		list.APIVersion, list.Kind = "coordination.k8s.io/v1", "LeaseList"
	}
	list.ResourceVersion = a.text(rv)
	if a.alwaysRV != nil {
		list.ResourceVersion = a.text(a.alwaysRV())
	}
	state := stateAt(history, rv)
	keys := make([]string, 0, len(state))
	for k := range state {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	for _, k := range keys {
		if k <= from {
			continue
		}
		if limit > 0 && len(list.Items) == limit {
			last := list.Items[limit-1]
			list.Continue = fmt.Sprintf("%d|%s", rv, cache.MetaObjectToName(&last).String())
			break
		}
		list.Items = append(list.Items, *a.object(state[k]))
	}
	if a.json || a.whole {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(list)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
	w.Write(protoBytes(list))
}

func protoBytes(obj runtime.Object) []byte {
	s := runtime.NewScheme()
	b, err := runtime.Encode(protobuf.NewSerializer(s, s), obj)
	if err != nil {
		panic(err)
	}
	return b
}

func (a *fakeAPI) serveWatch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	from, err := strconv.Atoi(q.Get("resourceVersion"))
	seconds, err2 := strconv.Atoi(q.Get("timeoutSeconds"))
	if err != nil || err2 != nil || q.Get("allowWatchBookmarks") != "true" {
		http.Error(w, "bad watch", http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	gone := from < a.compactedTo
	bookmarkAt, late := a.bookmarkAt, a.late
	a.mu.Unlock()
	if a.json {
		w.Header().Set("Content-Type", "application/json;stream=watch")
	} else {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	}
	if gone {
		a.event(w, "ERROR", &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version",
		})
		return
	}
	if late > 0 {
		w.(http.Flusher).Flush()
		select {
		case <-time.After(late):
		case <-r.Context().Done():
			return
		}
	}
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	var bookmark <-chan time.Time
	if bookmarkAt > 0 {
		t := time.NewTimer(bookmarkAt)
		defer t.Stop()
		bookmark = t.C
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	w.(http.Flusher).Flush()
	for {
		history, now := a.snapshot()
		for _, c := range history {
			if c.rv > from {
				kind := "MODIFIED"
				if c.deleted {
					kind = "DELETED"
				}
				a.event(w, kind, a.object(c))
				from = c.rv
			}
		}
		from = max(from, now)
		select {
		case <-tick.C:
		case <-bookmark:
			a.event(w, "BOOKMARK", a.object(change{rv: from}))
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (a *fakeAPI) event(w http.ResponseWriter, kind string, obj runtime.Object) {
	defer w.(http.Flusher).Flush()
	if a.json {
		raw, _ := json.Marshal(obj)
		json.NewEncoder(w).Encode(metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: raw}})
		return
	}
	e := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: protoBytes(obj)}}
	b, err := e.Marshal()
	if err != nil {
		panic(err)
	}
	w.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
	w.Write(b)
}

// pipeListener serves HTTP over net.Pipe, so that it runs in a synctest bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve starts a server for the test and returns a config that reaches it.
func serve(t *testing.T, h http.Handler) *rest.Config {
	t.Helper()
	config, stop := serveUntil(h)
	t.Cleanup(stop)
	return config
}

func serveUntil(h http.Handler) (config *rest.Config, stop func()) {
	l := &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		srv.Serve(l)
	}()
	transport := &http.Transport{DialContext: l.dial}
	return &rest.Config{Host: "http://fake", Transport: transport, UserAgent: "kube-controller-manager/v1"}, func() {
		transport.CloseIdleConnections()
		srv.Close()
		<-stopped
	}
}

// fakeView is a store that shows the server's history up to an RV.
type fakeView struct {
	api *fakeAPI

	mu                sync.Mutex
	rv                string
	objects           map[string]object
	moved             chan struct{}
	observe, replaced []func(string)
}

func newView(api *fakeAPI) *fakeView { return &fakeView{api: api, moved: make(chan struct{})} }

// sync has a list bring the store to the state at the given RV.
func (v *fakeView) sync(rv int) {
	v.mu.Lock()
	replaced := slices.Clone(v.replaced)
	v.mu.Unlock()
	for _, tell := range replaced {
		tell(v.api.text(rv))
	}
	v.show(rv)
}

// show brings the store to the state at the given RV.
func (v *fakeView) show(rv int) {
	history, _ := v.api.snapshot()
	objects := map[string]object{}
	for k, c := range stateAt(history, rv) {
		objects[k] = object{c.uid, v.api.text(c.rv)}
	}
	v.set(v.api.text(rv), objects)
}

// follow brings the store to the last event at or before rv, as events alone do.
func (v *fakeView) follow(rv int) {
	history, _ := v.api.snapshot()
	last := 0
	for _, c := range history {
		if c.rv <= rv {
			last = c.rv
		}
	}
	if last > 0 {
		v.show(last)
	}
}

func (v *fakeView) set(rv string, objects map[string]object) {
	v.mu.Lock()
	v.rv, v.objects = rv, objects
	close(v.moved)
	v.moved = make(chan struct{})
	observe := slices.Clone(v.observe)
	v.mu.Unlock()
	for _, tell := range observe {
		tell(rv)
	}
}

func (v *fakeView) AddResourceVersionObserver(fn func(string)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.observe = append(v.observe, fn)
}

func (v *fakeView) AddReplaceObserver(fn func(string)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.replaced = append(v.replaced, fn)
}

// LastStoreSyncResourceVersion and GetByKey implement rvtracker.Store.
func (v *fakeView) LastStoreSyncResourceVersion() string { return v.ResourceVersion() }

func (v *fakeView) GetByKey(string) (any, bool, error) { return nil, false, nil }

func (v *fakeView) ResourceVersion() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.rv
}

func (v *fakeView) WaitFor(ctx context.Context, rv string) error {
	for {
		v.mu.Lock()
		now, moved := v.rv, v.moved
		v.mu.Unlock()
		if Passed(now, rv) {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (v *fakeView) Len() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.objects)
}

func (v *fakeView) Each(visit func(string, types.UID, string)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for k, o := range v.objects {
		visit(k, o.uid, o.rv)
	}
}

func newProver(t *testing.T, opts Options) *Prover {
	t.Helper()
	p, err := New(opts)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// track has the prover look at a cache, with a tracker of its own, and returns a controller that reads it.
func track(p *Prover, gvr schema.GroupVersionResource, view cacheView) *rvtracker.Controller {
	return trackBy(rvtracker.New(rvtracker.Options{Fencer: p.Fencer()}), p, gvr, view)
}

func trackBy(tracker *rvtracker.Tracker, p *Prover, gvr schema.GroupVersionResource, view cacheView) *rvtracker.Controller {
	store, ok := view.(rvtracker.Store)
	if !ok {
		store = newView(&fakeAPI{})
	}
	p.resource(gvr).register(view, tracker.Register(gvr.GroupResource(), store))
	return tracker.ForController("test", map[schema.GroupResource]rvtracker.Store{gvr.GroupResource(): store}, func(types.NamespacedName) {})
}
