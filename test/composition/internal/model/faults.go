// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Hold keeps back what the watches of a resource bring, but those of the prover, until they are released.
func (s *Server) Hold(r *Resource, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[r]
	st.held = held
	for w := range st.streams {
		w.wake()
	}
}

// Down has nobody reach the server, and ends all watches, until it is over.
func (s *Server) Down(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !on {
		s.downs--
		return
	}
	s.downs++
	for _, st := range s.stores {
		for w := range st.streams {
			w.end = true
			w.wake()
		}
	}
}

// Lag puts an apiserver that stands still before a resource, for who comes anew: until it is over, a watch that begins with all objects, and a list that is
// content with any version, bring what there was when it began. Open watches go on, and the prover's requests, which are consistent.
func (s *Server) Lag(r *Resource, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[r]
	st.lagsAt = 0
	if on {
		st.lagsAt = s.rv
	}
	for w := range st.streams {
		w.wake()
	}
}

// Late has all watches of a resource bring events so much later, those of the prover, too.
func (s *Server) Late(r *Resource, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[r]
	st.late = by
	for w := range st.streams {
		w.wake()
	}
}

// Drop has the watches of a resource that are open, but those of the prover, lose the next event, or, once it is over,
// no further one.
func (s *Server) Drop(r *Resource, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[r]
	if !on {
		st.drop = nil
		return
	}
	lost := ""
	st.drop = func(o Object) bool {
		if lost == "" {
			lost = o.GetResourceVersion()
		}
		return o.GetResourceVersion() == lost
	}
}

// Expire ends the watches of a resource with 410, so that they have to list anew.
func (s *Server) Expire(r *Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[r]
	s.rv++
	st.compacted = s.rv
	for w := range st.streams {
		if !w.prover {
			w.goneRV = true
			w.wake()
		}
	}
}

// Forget drops the history that every watch has been told, and who owned what is gone, so that a run of any length has room.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.stores {
		told := len(st.log)
		for w := range st.streams {
			told = min(told, w.next)
		}
		st.log = slices.Clone(st.log[told:])
		for w := range st.streams {
			w.next -= told
		}
		if told > 0 {
			st.compacted = s.rv
		}
	}
	maps.DeleteFunc(s.owners, func(key types.NamespacedName, _ Owner) bool {
		return s.stores[Pods].objects[key] == nil && s.stores[Revisions].objects[key] == nil
	})
}
