// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

const (
	// vital components hold the cluster's state or are the way to it: without them the lab ends.
	vital = true
	// replaceable ones are started again, as a kubelet does with a static pod.
	replaceable = false

	restartPause = time.Second
	tailLines    = 5
)

// supervise waits for a component to die, says so, and starts it again or makes the lab fail.
func (l *lab) supervise(ctx context.Context, fail context.CancelCauseFunc, comp *controlplane.Component, isVital bool) {
	for {
		exit := comp.Wait(ctx)
		if ctx.Err() != nil {
			return
		}
		status := "exit status 0"
		if exit != nil {
			status = exit.Error()
		}
		klog.FromContext(ctx).Info("Component died", "component", comp.Name(), "exit", status)
		l.state.update(func(s *Snapshot) {
			c := s.component(comp.Name())
			c.State, c.PID = controlplane.StateFailed, 0
			c.Trouble = fmt.Sprintf("died: %s; log: %s", status, comp.LogPath())
			c.Tail = tail(comp.LogPath(), tailLines)
		})
		if isVital {
			fail(fmt.Errorf("%s died (%s), and nothing works without it", comp.Name(), status))
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartPause):
		}
		if err := comp.Restart(ctx); err != nil {
			if ctx.Err() == nil {
				fail(fmt.Errorf("%s died (%s) and does not start again: %w", comp.Name(), status, err))
			}
			return
		}
		l.state.update(func(s *Snapshot) {
			c := s.component(comp.Name())
			c.Restarts++
			c.Trouble, c.Tail = strings.Replace(c.Trouble, "died:", "died and was started again:", 1), nil
		})
		if err := l.readGates(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "Gates unknown after a restart")
		}
	}
}

// tail returns the last lines of a log.
func tail(path string, lines int) []string {
	const window = 16 << 10
	f, err := os.Open(path)
	if err != nil {
		return []string{err.Error()}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return []string{err.Error()}
	}
	buf := make([]byte, min(info.Size(), window))
	n, _ := f.ReadAt(buf, info.Size()-int64(len(buf)))
	all := strings.Split(strings.TrimRight(string(buf[:n]), "\n"), "\n")
	return all[max(0, len(all)-lines):]
}
