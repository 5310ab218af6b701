// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

// spec is the body of POST /faults: a target, an effect by name, and the fields of that effect.
type spec struct {
	Effect    string `json:"effect"`
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	UserAgent string `json:"userAgent"`
	Running   bool   `json:"running"`

	Lists      bool              `json:"lists"`      // Hold
	By         metav1.Duration   `json:"by"`         // Delay
	Count      int               `json:"count"`      // DropEvents, TooLargeRV, TooManyRequests, LoseAnswers, CutAnswers
	Types      []watch.EventType `json:"types"`      // DropEvents, DoubleEvents, ReorderEvents, OpaqueRVs
	Namespace  string            `json:"namespace"`  // DropEvents, DoubleEvents, ReorderEvents, OpaqueRVs
	Name       string            `json:"name"`       // DropEvents, DoubleEvents, ReorderEvents, OpaqueRVs
	UID        types.UID         `json:"uid"`        // DropEvents, DoubleEvents, ReorderEvents, OpaqueRVs
	Resumed    bool              `json:"resumed"`    // Gone
	Current    uint64            `json:"current"`    // TooLargeRV
	RetryAfter metav1.Duration   `json:"retryAfter"` // TooManyRequests
	Verbs      []string          `json:"verbs"`      // TooManyRequests, LoseAnswers, CutAnswers
	After      int               `json:"after"`      // CutAnswers
	Whole      bool              `json:"whole"`      // CutAnswers
}

func (s spec) inject(p *faultproxy.Proxy) (*faultproxy.Fault, error) {
	var e faultproxy.Effect
	switch s.Effect {
	case "BlackHole":
		return p.BlackHole(), nil
	case "Refuse":
		return p.Refuse(), nil
	case "Hold":
		e = faultproxy.Hold{Lists: s.Lists}
	case "Delay":
		e = faultproxy.Delay{By: s.By.Duration}
	case "StopReading":
		e = faultproxy.StopReading{}
	case "DropStream":
		e = faultproxy.DropStream{}
	case "DropEvents":
		e = faultproxy.DropEvents{Count: s.Count, Match: s.matchEvent()}
	case "OpaqueRVs":
		e = faultproxy.OpaqueRVs{Match: s.matchEvent()}
	case "DoubleEvents":
		e = faultproxy.DoubleEvents{Match: s.matchEvent()}
	case "ReorderEvents":
		e = faultproxy.ReorderEvents{Match: s.matchEvent()}
	case "SuppressBookmarks":
		e = faultproxy.SuppressBookmarks{}
	case "Gone":
		e = faultproxy.Gone{Resumed: s.Resumed}
	case "TooLargeRV":
		e = faultproxy.TooLargeRV{Current: s.Current, Count: s.Count}
	case "TooManyRequests":
		e = faultproxy.TooManyRequests{RetryAfter: s.RetryAfter.Duration, Verbs: s.Verbs, Count: s.Count}
	case "LoseAnswers":
		e = faultproxy.LoseAnswers{Verbs: s.Verbs, Count: s.Count}
	case "CutAnswers":
		e = faultproxy.CutAnswers{Verbs: s.Verbs, After: s.After, Whole: s.Whole, Count: s.Count}
	default:
		return nil, fmt.Errorf("unknown effect %q", s.Effect)
	}
	return p.Inject(faultproxy.Target{
		Resource:  schema.GroupResource{Group: s.Group, Resource: s.Resource},
		UserAgent: s.UserAgent,
		Running:   s.Running,
	}, e)
}

// matchEvent returns nil, which has a meaning of its own, if the spec says nothing of the event.
func (s spec) matchEvent() func(faultproxy.Event) bool {
	if len(s.Types) == 0 && s.Namespace == "" && s.Name == "" && s.UID == "" {
		return nil
	}
	return func(e faultproxy.Event) bool {
		return (len(s.Types) == 0 || slices.Contains(s.Types, e.Type)) &&
			(s.Namespace == "" || s.Namespace == e.Namespace) &&
			(s.Name == "" || s.Name == e.Name) &&
			(s.UID == "" || s.UID == e.UID)
	}
}

type requestCount struct {
	faultproxy.RequestKey
	Count int64
}

type stats struct {
	Faults   []faultproxy.Stats
	Watches  []faultproxy.WatchStatus
	Requests []requestCount
	Progress *faultproxy.Progress `json:",omitempty"`
}

func newControl(p *faultproxy.Proxy) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		var s spec
		if !read(w, r, &s) {
			return
		}
		f, err := s.inject(p)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, http.StatusCreated, f.Stats())
	})
	mux.HandleFunc("PUT /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		var s struct {
			By metav1.Duration `json:"by"`
		}
		f := find(w, r, p)
		if f == nil || !read(w, r, &s) {
			return
		}
		if err := f.SetDelay(s.By.Duration); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, http.StatusOK, f.Stats())
	})
	mux.HandleFunc("DELETE /faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if f := find(w, r, p); f != nil {
			f.Clear()
			reply(w, http.StatusOK, f.Stats())
		}
	})
	mux.HandleFunc("POST /backend", func(w http.ResponseWriter, r *http.Request) {
		var s struct {
			Name string `json:"name"`
			Cut  bool   `json:"cut"`
		}
		if !read(w, r, &s) {
			return
		}
		how := faultproxy.EndWatches
		if s.Cut {
			how = faultproxy.CutConnections
		}
		if err := p.SwitchBackend(s.Name, how); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reply(w, http.StatusOK, struct{}{})
	})
	mux.HandleFunc("GET /journal", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, p.Journal()) })
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) { reply(w, http.StatusOK, collect(p, r)) })
	return mux
}

func collect(p *faultproxy.Proxy, r *http.Request) stats {
	out := stats{Watches: p.Watches()}
	for _, f := range p.Faults() {
		out.Faults = append(out.Faults, f.Stats())
	}
	for k, n := range p.Requests() {
		out.Requests = append(out.Requests, requestCount{RequestKey: k, Count: n})
	}
	slices.SortFunc(out.Requests, func(a, b requestCount) int { return cmp.Compare(b.Count, a.Count) })
	if resource := r.FormValue("resource"); resource != "" {
		pr := p.Progress(schema.GroupResource{Group: r.FormValue("group"), Resource: resource})
		out.Progress = &pr
	}
	return out
}

func find(w http.ResponseWriter, r *http.Request, p *faultproxy.Proxy) *faultproxy.Fault {
	for _, f := range p.Faults() {
		if f.ID() == r.PathValue("id") {
			return f
		}
	}
	http.Error(w, fmt.Sprintf("no fault %q in force", r.PathValue("id")), http.StatusNotFound)
	return nil
}

// read refuses unknown fields, because a misspelt one would be a fault that was never injected.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
