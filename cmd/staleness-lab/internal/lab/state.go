// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"slices"
	"sync"
	"time"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/control"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane/gates"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// Phase is how far the lab is.
type Phase string

// The phases, in order.
const (
	Starting Phase = "starting"
	Ready    Phase = "ready"
	Stopping Phase = "stopping"
	Stopped  Phase = "stopped"
)

// Component is one process of the cluster.
type Component struct {
	controlplane.Status
	// Restarts is how often it died and was started again.
	Restarts int
	// Trouble says how it died last, and Tail its last log lines then.
	Trouble string
	Tail    []string
}

// DaemonSet is how far the sample is.
type DaemonSet struct {
	// Counted says that the controller has said how many pods it wants, which is Desired.
	Counted bool
	Desired int
	// Current pods exist, Ready ones run.
	Current, Ready int
}

// Fault is what a second command has asked for.
type Fault struct {
	control.Fault
	Begin time.Time
}

// Snapshot is all there is to say of the lab at one moment.
type Snapshot struct {
	Phase Phase
	// Elapsed is since the beginning, ReadyAfter how long it took until everything ran.
	Elapsed, ReadyAfter time.Duration

	Components               []Component
	NodesReady, NodesWanted  int
	DaemonSet                DaemonSet
	Gates                    []gates.Gate
	Dir, Kubeconfig, LogsDir string
	// BinDir has this command and kubectl. PageURL is where /stalenessz is, PageConfig has curl's way in; both are empty
	// until all is ready. Node is one of the nodes.
	BinDir, PageURL, PageConfig, Node string
	// Page is what /stalenessz says, nil while it cannot be read.
	Page *stalenessz.Stalenessz
	// Faults are in force.
	Faults []*Fault
	// Temporary says that Dir is removed at the end.
	Temporary bool
	// Waiting says what is under way and not visible elsewhere.
	Waiting string
}

// state is the snapshot in the making; every change wakes who draws.
type state struct {
	begin   time.Time
	changed chan struct{}

	mu sync.Mutex
	s  Snapshot
}

func newState() *state {
	return &state{begin: time.Now(), changed: make(chan struct{}, 1), s: Snapshot{Phase: Starting}}
}

func (st *state) update(f func(*Snapshot)) {
	st.mu.Lock()
	f(&st.s)
	st.mu.Unlock()
	select {
	case st.changed <- struct{}{}:
	default:
	}
}

// component returns the named component to be changed; it is added if it is new.
func (s *Snapshot) component(name string) *Component {
	for i := range s.Components {
		if s.Components[i].Name == name {
			return &s.Components[i]
		}
	}
	s.Components = append(s.Components, Component{Status: controlplane.Status{Name: name}})
	return &s.Components[len(s.Components)-1]
}

func (st *state) snapshot() Snapshot {
	st.mu.Lock()
	defer st.mu.Unlock()
	out := st.s
	out.Elapsed = time.Since(st.begin)
	out.Components = append([]Component(nil), st.s.Components...)
	out.Faults = slices.Clone(st.s.Faults)
	return out
}
