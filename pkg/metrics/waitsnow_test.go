// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
)

func TestWaitsNow(t *testing.T) {
	Register()
	t.Cleanup(func() { SetWaits(nil) })
	names := []string{"stale_controller_longest_wait_seconds", "stale_controller_recorded_objects"}
	published := func(want string) {
		t.Helper()
		require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), names...))
	}
	published("") // both gates are off
	leading := false
	SetWaits(func() (Waits, bool) {
		return Waits{Longest: map[string]Waiting{"job": {Object: 90 * time.Second}}, Recorded: 3}, leading
	})
	published("")
	leading = true
	published(`
# HELP stale_controller_longest_wait_seconds [ALPHA] Longest wait of the controller that has not ended yet, because a cache may be stale: of an object that is not reconciled (waiting="object"), and of a disruptive action that is put off (waiting="action"). 0 if none waits; absent while the process does not lead.
# TYPE stale_controller_longest_wait_seconds gauge
stale_controller_longest_wait_seconds{controller="job",waiting="action"} 0
stale_controller_longest_wait_seconds{controller="job",waiting="object"} 90
# HELP stale_controller_recorded_objects [ALPHA] Number of objects with recorded writes that a cache does not show yet. Absent while the process does not lead.
# TYPE stale_controller_recorded_objects gauge
stale_controller_recorded_objects 3
`)
}
