// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resources are those of kinds: each write and each view asks for one, and a guess takes longer than the rest of what is asked then.
var resources = func() map[schema.GroupVersionKind]schema.GroupResource {
	all := make(map[schema.GroupVersionKind]schema.GroupResource, len(kinds))
	for _, kind := range kinds {
		all[kind] = guessed(kind)
	}
	return all
}()

// resourceOf is the resource of a kind.
func resourceOf(kind schema.GroupVersionKind) schema.GroupResource {
	if known, ok := resources[kind]; ok {
		return known
	}
	return guessed(kind)
}

func guessed(kind schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.GroupResource()
}

// ownResource is the resource of the controller's owners. known is false if it has none that is known.
func (s *Store) ownResource() (own schema.GroupResource, known bool) {
	kind, known := kinds[s.name]
	return resources[kind], known
}
