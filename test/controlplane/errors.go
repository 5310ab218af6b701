// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"strings"
)

// ErrAddressInUse is wrapped by the error for a component whose port was taken by another process.
var ErrAddressInUse = errors.New("address already in use")

// ComponentError says which component failed, and what is known about it.
type ComponentError struct {
	// Component is its name, Op what was being done: "start", "become ready", "stop".
	Component, Op string
	// PID is the process, 0 if there was none. Exit is its exit status, empty while it runs.
	PID  int
	Exit string
	// LogPath is its log file, LogTail the last lines of it.
	LogPath string
	LogTail []string
	// Err is the cause.
	Err error
}

// Error gives the facts on one line and the log's tail below it.
func (e *ComponentError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: could not %s", e.Component, e.Op)
	if e.PID != 0 {
		fmt.Fprintf(&b, " (pid %d", e.PID)
		if e.Exit != "" {
			fmt.Fprintf(&b, ", %s", e.Exit)
		}
		b.WriteString(")")
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.LogPath != "" {
		fmt.Fprintf(&b, "; log: %s", e.LogPath)
	}
	for _, line := range e.LogTail {
		b.WriteString("\n  | " + line)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *ComponentError) Unwrap() error { return e.Err }
