// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is one run of a component. It is reaped as soon as it exits.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when reaped
	exit error         // valid after done
}

// startProcess runs argv with stdout and stderr appended to the log file.
func startProcess(argv, env []string, log *os.File) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	// A file, not a pipe: the process goes on writing whatever becomes of the reader.
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = sysProcAttr()
	if err := fork(p.cmd.Start); err != nil {
		return nil, err
	}
	go func() {
		p.exit = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exitStatus says how the process ended, or nothing while it runs.
func (p *process) exitStatus() string {
	if !p.exited() {
		return ""
	}
	return p.cmd.ProcessState.String()
}

func (p *process) signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// terminate asks the process to end and kills it after the grace period. A paused one is resumed for it.
func (p *process) terminate(grace time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := resumeProcess(p); err != nil {
		return err
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return p.kill()
	}
}

// kill ends the process without giving it a chance to tidy up, and waits until it is gone.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	const limit = time.Minute
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("pid %d is still there %v after SIGKILL", p.pid(), limit)
	}
}

// logTail returns the last lines of a log file from the given offset on.
func logTail(path string, offset int64, lines int) []string {
	const window = 32 << 10
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	if info.Size()-offset > window {
		offset = info.Size() - window
	}
	buf := make([]byte, info.Size()-offset)
	n, _ := f.ReadAt(buf, offset)
	all := strings.Split(strings.TrimRight(string(buf[:n]), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return all
}
