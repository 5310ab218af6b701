// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever may write to the folder above must not be able to have files of ours opened, or ports kept from us.
func TestPortsAreLeasedInAFolderOfOurOwn(t *testing.T) {
	own := "fresh-kcm-ports-" + strconv.Itoa(os.Getuid())
	for name, tc := range map[string]struct {
		prepare func(t *testing.T, dir string)
		fails   string
	}{
		"made":        {func(*testing.T, string) {}, ""},
		"made before": {func(t *testing.T, dir string) { require.NoError(t, os.Mkdir(dir, 0o700)) }, ""},
		"open to all": {func(t *testing.T, dir string) {
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.Chmod(dir, 0o777))
		}, "open to others"},
		"another's":    {func(t *testing.T, dir string) { require.NoError(t, os.Mkdir(dir, 0o700)); chown(t, dir) }, "another user"},
		"a symlink":    {func(t *testing.T, dir string) { require.NoError(t, os.Symlink(t.TempDir(), dir)) }, "no folder"},
		"a file":       {func(t *testing.T, dir string) { require.NoError(t, os.WriteFile(dir, nil, 0o600)) }, "no folder"},
		"linked ports": {linkPorts, "too many levels of symbolic links"},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			dir := filepath.Join(tmp, own)
			tc.prepare(t, dir)
			lease, err := leasePort()
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			defer lease.release()
			info, err := os.Stat(dir)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
			again, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(lease.port)), os.O_RDWR, 0)
			require.NoError(t, err)
			defer again.Close()
			require.ErrorIs(t, tryLock(again), syscall.EWOULDBLOCK, "others of this user are kept off")
		})
	}
}

func chown(t *testing.T, path string) {
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Skip("only root can give a folder away")
	}
}

// linkPorts has every port's file be a link to one that must not be touched.
func linkPorts(t *testing.T, dir string) {
	require.NoError(t, os.Mkdir(dir, 0o700))
	target := filepath.Join(t.TempDir(), "target")
	for port := firstPort; port <= lastPort; port++ {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, strconv.Itoa(port))))
	}
	t.Cleanup(func() { require.NoFileExists(t, target) })
}
