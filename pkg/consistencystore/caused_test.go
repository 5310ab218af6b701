// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// A queue that has given an owner up is told of no failure of a reconcile that its action has caused: it would begin anew. A reconcile that is made again because it wanted a newer
// reading has the same cause, and two waits that end at once cause two.
func TestWhatAnActionHasCausedIsLeftToIt(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	scaleDown := transport.Write{Method: http.MethodPut, Resource: schema.GroupResource{Group: "apps", Resource: "replicasets"}}
	var r refusals
	fails := func() (caused bool) {
		r.begin(owner)
		r.note(owner, scaleDown)
		dropped, caused := r.dropped(owner)
		return dropped && caused
	}
	putOff := func() {
		r.begin(owner)
		r.asks(owner)
	}
	for range givenUpAfter {
		require.False(t, fails())
	}

	r.wakes(owner)
	putOff()
	require.True(t, fails(), "made again")
	require.False(t, fails())

	r.wakes(owner)
	r.wakes(owner) // A queue may have let go of the owner in between.
	require.True(t, fails())
	require.True(t, fails())
	require.False(t, fails())

	for range 9 {
		r.wakes(owner)
	}
	require.True(t, fails())
	require.True(t, fails())
	require.False(t, fails(), "a queue has an owner twice at most")
}
