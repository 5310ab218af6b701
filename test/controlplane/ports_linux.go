// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"syscall"
)

// tryLock takes the file's lock, which the kernel gives back when the file is closed or we die.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// noFollow has the opening of a symlink fail.
const noFollow = syscall.O_NOFOLLOW

// isOurs says that a file belongs to the user of this process.
func isOurs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}
