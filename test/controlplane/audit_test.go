// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A log that was put aside is no log in which nothing has happened.
func TestReadAuditOfALogThatWasPutAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	read := func(offset int64) (events int, end int64, err error) {
		end, err = ReadAudit(path, offset, func(AuditEvent) { events++ })
		return events, end, err
	}
	line := []byte("{\"verb\":\"create\"}\n")
	require.NoError(t, os.WriteFile(path, append(line, line...), 0o600))
	events, end, err := read(0)
	require.NoError(t, err)
	require.Equal(t, 2, events)
	events, end, err = read(end)
	require.NoError(t, err)
	require.Zero(t, events)
	require.NoError(t, os.WriteFile(path, line, 0o600))
	_, _, err = read(end)
	require.ErrorContains(t, err, "put aside")
}
