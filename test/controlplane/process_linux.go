// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr puts a component in a process group of its own, out of reach of the terminal's ^C, so
// that Stop decides the order in which components end; and has the kernel kill it when we die.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// forks carries work to the one OS thread that starts processes. Linux sends Pdeathsig when the thread
// that forked ends, not when the process does, and the Go runtime ends threads as it sees fit.
var forks = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked: this goroutine lives as long as the process
		for f := range work {
			f()
		}
	}()
	return work
})

func fork(start func() error) error {
	result := make(chan error)
	forks() <- func() { result <- start() }
	return <-result
}

// pauseProcess stops a process, and returns when all of its threads have stopped: until one of them has had a processor to take the
// signal, all go on, which takes long on a busy machine.
func pauseProcess(p *process) error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		// Whoever waits for its end is left to see that.
		err := unix.Waitid(unix.P_PID, p.pid(), nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil, errors.Is(err, unix.ECHILD): // It has stopped, or ended.
			return nil
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("waiting for pid %d to stop: %w", p.pid(), err)
		}
	}
}

func resumeProcess(p *process) error { return p.signal(syscall.SIGCONT) }

// processGroupGone returns an error while a process of the group is left.
func processGroupGone(pgid int) error {
	if err := syscall.Kill(-pgid, 0); !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("process group %d is not empty", pgid)
	}
	return nil
}
