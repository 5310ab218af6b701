// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

//conformance:kep-5647 Risks and Mitigations: after a restart a controller sees a consistent world: most wait until their caches are proven
func TestWhichControllersWaitToStart(t *testing.T) {
	waits := waitsToStart(sets.New(names.PodGarbageCollectorController))
	require.True(t, waits(names.EndpointSliceController))
	require.False(t, waits(names.PodGarbageCollectorController), "it is exempt")
	require.True(t, waitsToStart(nil)(names.PodGarbageCollectorController))

	atOnce := 0
	for _, name := range app.KnownControllers() {
		if !waitsToStart(nil)(name) {
			atOnce++
		}
	}
	require.Equal(t, 12, atOnce, "all that pkg/inventory names are upstream's")
}
