// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessmonitor

import (
	"cmp"
	"encoding/json"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// Path of the page.
const Path = "/stalenessz"

// Wait is something that is not done now because a cache may be stale.
type Wait struct {
	// Controller and Owner, as "namespace/name", say who waits; Resource is the cache that it waits for.
	Controller string
	Owner      string
	Resource   schema.GroupResource
	// For is what has to happen, Why the reason that it has not.
	For, Why string
	Since    time.Time
}

// Term is one term of leadership of this process.
type Term interface {
	// Caches are those that the monitor probes; none if it is off.
	Caches() []Cache
	// Objects is the number of objects in one of them.
	Objects(resource schema.GroupVersionResource) int
	// Waits may be in any order.
	Waits() []Wait
}

// Page serves /stalenessz for the terms of leadership of this process: HTML for a browser, plain text
// for other clients, and JSON (see Stalenessz) if asked for by "Accept: application/json" or
// ?format=json. It asks the server nothing.
type Page struct {
	// Monitoring and Consistency say which gates are on.
	Monitoring, Consistency bool

	mu    sync.Mutex
	terms []Term
}

var _ http.Handler = (*Page)(nil)

// Add shows a term until remove is called.
func (p *Page) Add(t Term) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.terms = append(p.terms, t)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.Index(p.terms, t); i >= 0 {
			p.terms = slices.Delete(p.terms, i, i+1)
		}
	}
}

func (p *Page) current() []Term {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.terms)
}

// Caches returns each resource once: with leader migration two terms may have an informer for one, and
// then it is the one of which less is proven.
func (p *Page) Caches() []Cache {
	var out []Cache
	at := map[schema.GroupVersionResource]int{}
	for _, t := range p.current() {
		for _, c := range t.Caches() {
			i, twice := at[c.Resource]
			switch {
			case !twice:
				at[c.Resource] = len(out)
				out = append(out, c)
			case c.Proven.Before(out[i].Proven):
				out[i] = c
			}
		}
	}
	return out
}

// view is what all forms of the page are made from.
type view struct {
	Now         time.Time
	Leading     bool
	Monitoring  bool
	Consistency bool
	Caches      []cacheView
	Waits       []Wait
	Counts      map[State]int
	// Handlers is how many event handlers there are, Behind those that are behind, furthest first.
	Handlers int
	Behind   []handlerView
}

type handlerView struct {
	Handler
	Resource schema.GroupResource
	// Stored is the resource version of the store.
	Stored string
}

type cacheView struct {
	Cache
	Objects int
}

func (p *Page) view() view {
	terms := p.current()
	v := view{Now: time.Now(), Leading: len(terms) > 0, Monitoring: p.Monitoring, Consistency: p.Consistency, Counts: map[State]int{}}
	for _, c := range p.Caches() {
		cv := cacheView{Cache: c}
		for _, t := range terms {
			cv.Objects = max(cv.Objects, t.Objects(c.Resource))
		}
		v.Caches = append(v.Caches, cv)
		v.Counts[c.State]++
		v.Handlers += len(c.Handlers)
		for _, h := range c.Handlers {
			if h.Lag > 0 {
				v.Behind = append(v.Behind, handlerView{h, c.Resource.GroupResource(), c.Stored})
			}
		}
	}
	slices.SortStableFunc(v.Caches, func(a, b cacheView) int { return cmp.Compare(urgency(a.State), urgency(b.State)) })
	slices.SortStableFunc(v.Behind, func(a, b handlerView) int { return cmp.Compare(b.Lag, a.Lag) })
	for _, t := range terms {
		v.Waits = append(v.Waits, t.Waits()...)
	}
	slices.SortStableFunc(v.Waits, func(a, b Wait) int { return a.Since.Compare(b.Since) })
	return v
}

// urgency puts first what needs a look.
func urgency(s State) int {
	switch s {
	case Stalled:
		return 0
	case Lagging:
		return 1
	case Unknown:
		return 2
	}
	return 3
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "use GET", http.StatusMethodNotAllowed)
		return
	}
	v := p.view()
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	var err error
	switch form(r) {
	case "json":
		h.Set("Content-Type", "application/json")
		lines := json.NewEncoder(w)
		lines.SetIndent("", "  ")
		err = lines.Encode(v.structured())
	case "html":
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		err = htmlPage.Execute(w, v)
	case "text":
		h.Set("Content-Type", "text/plain; charset=utf-8")
		err = v.text(w)
	default:
		http.Error(w, "format is one of json, html and text", http.StatusBadRequest)
	}
	if err != nil {
		klog.FromContext(r.Context()).V(2).Info("The page could not be written", "path", Path, "err", err)
	}
}

// form is the format asked for: by name, else the first that the client accepts and the page has.
func form(r *http.Request) string {
	if f := r.URL.Query().Get("format"); f != "" {
		return f
	}
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		switch mediaType, _, _ := mime.ParseMediaType(accepted); mediaType {
		case "application/json":
			return "json"
		case "text/html":
			return "html"
		}
	}
	return "text"
}
