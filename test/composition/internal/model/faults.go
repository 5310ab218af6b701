// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

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

// Drop has the watches of a resource that are open, but those of the prover, lose the next event.
func (s *Server) Drop(r *Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stores[r]
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
