// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
)

// Process is what a process has taken so far.
type Process struct {
	// CPU is its CPU time in seconds.
	CPU float64
	// Peak is the largest resident set since ResetPeak, or since the start, in bytes.
	Peak float64
}

// ReadProcess reads it from /proc.
func ReadProcess(pid int) (Process, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{CPU: stat.CPUTime(), Peak: float64(status.VmHWM)}, nil
}

// ResetPeak has the kernel forget how large the resident set was.
func ResetPeak(pid int) error {
	// See clear_refs in proc(5).
	if err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("5"), 0); err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	return nil
}

// Machine describes this machine. What cannot be read is left empty.
func Machine() sample.Machine {
	var m sample.Machine
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			m.CPU, m.Cores = cpus[0].ModelName, len(cpus)
		}
		if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
			m.Memory = int64(*memory.MemTotalBytes)
		}
		if load, err := fs.LoadAvg(); err == nil {
			m.Load = load.Load1
		}
	}
	var names unix.Utsname
	if unix.Uname(&names) == nil {
		// What follows the dash is whoever built it.
		release, _, _ := bytes.Cut(bytes.TrimRight(names.Release[:], "\x00"), []byte("-"))
		m.Kernel = string(bytes.TrimRight(names.Sysname[:], "\x00")) + " " + string(release)
	}
	return m
}
