// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// untilStopped returns a context that ends when the user wants the command to end: by Ctrl-C, by a closed
// terminal, or because nobody reads out any more. The signals stay caught until stop: a second Ctrl-C must
// not keep the first from tidying up.
func untilStopped(out *os.File) (_ context.Context, stop func()) {
	ctx, stopNotify := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	// A connection that the other end has closed brings the same signal, and is nothing to end for.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	go func() {
		for range pipes {
			if readerGone(out) {
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(pipes)
		close(pipes)
		cancel()
		stopNotify()
	}
}

// readerGone reports whether nobody can ever read what is written to the file.
func readerGone(out *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(out.Fd()), Events: unix.POLLOUT}}
	_, err := unix.Poll(fds, 0)
	return err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0
}
