// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

import "slices"

// Leaks returns mutants that leak. The soak has to find each; none of them changes what controllers do.
func Leaks() []Mutant { return slices.Clone(leaks) }

const recorded = `func (s *Store) Recorded(owner types.NamespacedName, what transport.Write) {
	metrics.Recorded(s.name)
`

var (
	leakGoroutine = Mutant{
		Name: "leak-goroutine", Protection: "a recorded write leaves no goroutine behind", File: store,
		Old: recorded, New: recorded + "	go func() { <-s.ctx.Done() }()\n",
	}
	leakHeap = Mutant{
		Name: "leak-heap", Protection: "a recorded write leaves nothing on the heap", File: store,
		Old: recorded, New: "var leaked [][]byte\n\n" + recorded + "	s.mu.Lock()\n	leaked = append(leaked, make([]byte, 64<<10))\n	s.mu.Unlock()\n",
	}
	leakRecord = Mutant{
		Name: "leak-record", Protection: "a record is dropped once the cache has the write", File: "pkg/rvtracker/controller.go",
		Old: "	c.table.remove(o)\n	c.busy.Add(-1)\n", New: "	c.table.remove(o)\n",
	}
	leaks = []Mutant{leakGoroutine, leakHeap, leakRecord}
)
