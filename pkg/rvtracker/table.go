// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"hash/maphash"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// filterSize is a power of two, and large compared with the owners that have writes in
// flight at one time, so that an idle owner is recognized without the lock.
const filterSize = 512

// ownerTable finds an owner by name. It is keyed by hash, owners of equal hash
// being chained, because a map keyed by the name costs twice the memory.
// Everything but mayHold is guarded by the tracker's lock.
type ownerTable struct {
	seed   maphash.Seed
	owners map[uint32]*owner
	count  int
	filter [filterSize]atomic.Int32
}

func newOwnerTable() *ownerTable {
	return &ownerTable{seed: maphash.MakeSeed(), owners: map[uint32]*owner{}}
}

// hash leaves the namespace out of the low bits, which choose the slot of the filter.
func (t *ownerTable) hash(name types.NamespacedName) uint32 {
	h := uint32(maphash.String(t.seed, name.Name))
	if name.Namespace != "" {
		h ^= uint32(maphash.String(t.seed, name.Namespace)) * filterSize
	}
	return h
}

// mayHold is false only if the owner is not in the table. Lock-free. It leaves the namespace
// out: hashing it too would double the cost of a check, and the same name pending in two
// namespaces only costs the lock.
func (t *ownerTable) mayHold(name types.NamespacedName) bool {
	return t.filter[maphash.String(t.seed, name.Name)%filterSize].Load() != 0
}

func (t *ownerTable) get(hash uint32, name types.NamespacedName) *owner {
	for o := t.owners[hash]; o != nil; o = o.chain {
		if o.name == name {
			return o
		}
	}
	return nil
}

func (t *ownerTable) put(hash uint32, o *owner) {
	o.hash = hash
	o.chain = t.owners[hash]
	t.owners[hash] = o
	t.count++
	t.filter[hash%filterSize].Add(1)
}

func (t *ownerTable) remove(o *owner) {
	head := t.owners[o.hash]
	if head == o {
		if o.chain == nil {
			delete(t.owners, o.hash)
		} else {
			t.owners[o.hash] = o.chain
		}
	} else {
		for head.chain != o {
			head = head.chain
		}
		head.chain = o.chain
	}
	o.chain = nil
	t.count--
	t.filter[o.hash%filterSize].Add(-1)
}

func (t *ownerTable) each(f func(*owner)) {
	for _, o := range t.owners {
		for o != nil {
			next := o.chain // f may remove o.
			f(o)
			o = next
		}
	}
}
