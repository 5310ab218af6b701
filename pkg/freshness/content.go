// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/types"
)

// content is what a collection holds, whatever the order: the number of objects, and the sum of their hashes.
type content struct {
	objects int
	sum     uint64
}

var contentSeed = maphash.MakeSeed()

func (c *content) add(key string, uid types.UID, rv string) {
	c.objects++
	c.sum += maphash.Comparable(contentSeed, [3]string{key, string(uid), rv})
}

// content of a listing, which is that of a store that equals it. A store that has objects past the list does not.
func (l *listing) content() content {
	var c content
	for key, o := range l.objects {
		c.add(key, o.uid, o.rv)
	}
	return c
}

// has reports whether the store, at rv, has this content. It must be called with mu held, and costs time in
// proportion to the objects only if their number is right.
func (r *resource) has(want content, rv string) bool {
	if r.view.Len() != want.objects {
		return false
	}
	if want.objects == 0 {
		return true
	}
	var c content
	r.view.Each(c.add)
	// A store that has moved on meanwhile may not have had this content at rv.
	return c == want && r.view.ResourceVersion() == rv
}
