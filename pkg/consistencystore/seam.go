// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// seamStore is what the seam in upstream's pkg/controller/util/consistency asks every controller's store for.
type seamStore interface {
	consistency.ConsistencyStore
	consistency.ParkingStore
	consistency.ProvingStore
	consistency.OwnWritesStore
	consistency.LeavingStore
	consistency.ViewStore
	consistency.PassStore
	consistency.KnowingStore
	consistency.ReadingStore
	consistency.UndecidedStore
	consistency.GraphStore
	consistency.LiveReadStore
	consistency.LiveNodesStore
	consistency.LaggingStore
	consistency.ListsStore
	consistency.EvictionGuardStore
	consistency.DeviceEvictionGuardStore
}

// The controllers look for these interfaces at run time, and go on as upstream without them: a method that is renamed or changed
// on one side alone does not compile.
var (
	_ seamStore                    = (*Store)(nil)
	_ transport.Store              = (*Store)(nil)
	_ seamStore                    = (*NodeStore)(nil)
	_ consistency.NodeBreakerStore = (*NodeStore)(nil)
	_ consistency.ParkedError      = (*rvtracker.NotReadyError)(nil)
	_ consistency.ParkedError      = (*heldError)(nil)
	_ consistency.ParkedError      = (*successorError)(nil)
	_ consistency.ParkedError      = (*UnprovenError)(nil)
	_ consistency.AgainError       = (*UnprovenError)(nil)
	_ consistency.FirstPass        = (*reading)(nil)
	_ consistency.DecidingPass     = (*reading)(nil)
	_ consistency.WritingPass      = (*reading)(nil)
	_ consistency.ExactPass        = (*reading)(nil)
	_ consistency.LoweringPass     = (*reading)(nil)
)
