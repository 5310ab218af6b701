// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clock sets the wall clock of one running process ahead or back, and nobody else's. The process asks the kernel for the time through
// code that the kernel maps into it (vDSO); Set replaces that code by some that asks with a system call and adds a difference.
// Timers go on as before, for they count by another clock, as where a machine's time is set.
//
// It takes Linux on amd64 and the right to trace the process, which its parent has.
package clock

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// asks is what a process asks for the time, by its name in the vDSO.
const asks = "__vdso_clock_gettime"

// code answers as clock_gettime(edi, rsi) does, with the seconds at difference added to the time of day.
var code = []byte{
	0xB8, 0xE4, 0, 0, 0, // mov eax, 228: clock_gettime
	0x0F, 0x05, // syscall
	0x85, 0xC0, // test eax, eax
	0x75, 19, // jne ret
	0x85, 0xFF, // test edi, edi: CLOCK_REALTIME is 0
	0x75, 15, // jne ret
	0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, // mov rax, difference
	0x48, 0x01, 0x06, // add [rsi], rax
	0x31, 0xC0, // xor eax, eax
	0xC3, // ret
}

const difference = 17

const (
	// limit is for how long a process is stopped again and again until none of its threads asks for the time at that moment.
	limit = 10 * time.Second
	// runs is for how long it runs in between, so that its threads are elsewhere by then, and how often it is looked at whether it stands.
	runs = time.Millisecond
)

// Supported says why the clock of a process cannot be set on this machine, if it cannot.
func Supported() error {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return fmt.Errorf("clock: it takes Linux on amd64, and this is %s on %s", runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

// Set has the clock of a process be ahead of everybody else's by whole seconds, or behind if that is negative, from now on.
func Set(pid int, ahead time.Duration) (err error) {
	if err := Supported(); err != nil {
		return err
	}
	from, to, err := vdso(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(proc(pid, "mem"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("clock: %w", err)
	}
	defer func() { err = errors.Join(err, memory.Close()) }()
	image := make([]byte, to-from)
	if _, err := memory.ReadAt(image, int64(from)); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("clock: %w", err)
	}
	offset, err := symbol(image)
	if err != nil {
		return err
	}
	replacement := bytes.Clone(code)
	binary.LittleEndian.PutUint64(replacement[difference:], uint64(int64(ahead/time.Second)))
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(runs) {
		quiet, err := stopped(pid, from, to)
		if err == nil && quiet {
			_, err = memory.WriteAt(replacement, int64(from+offset))
		}
		if err := errors.Join(err, syscall.Kill(pid, syscall.SIGCONT)); err != nil || quiet {
			return err
		}
	}
	return fmt.Errorf("clock: process %d asked for the time whenever it was stopped, for %s", pid, limit)
}

func proc(pid int, path ...string) string {
	return filepath.Join(append([]string{"/proc", fmt.Sprint(pid)}, path...)...)
}

// vdso returns where the kernel has mapped its code.
func vdso(pid int) (from, to uint64, err error) {
	maps, err := os.ReadFile(proc(pid, "maps"))
	if err != nil {
		return 0, 0, fmt.Errorf("clock: %w", err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			_, err = fmt.Sscanf(line, "%x-%x", &from, &to)
			return from, to, err
		}
	}
	return 0, 0, fmt.Errorf("clock: process %d has no vDSO", pid)
}

// symbol returns where the code that is asked for the time begins.
func symbol(image []byte) (uint64, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("clock: vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("clock: vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == asks && s.Value+uint64(len(code)) <= uint64(len(image)) {
			return s.Value, nil
		}
	}
	return 0, fmt.Errorf("clock: vDSO has no %s", asks)
}

// stopped stops a process and says whether none of its threads stands in the vDSO, or in a handler of a signal, from which it may go back there.
func stopped(pid int, from, to uint64) (bool, error) {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return false, fmt.Errorf("clock: %w", err)
	}
	threads, err := os.ReadDir(proc(pid, "task"))
	if err != nil {
		return false, fmt.Errorf("clock: %w", err)
	}
	for _, thread := range threads {
		there, err := stands(pid, thread.Name())
		if err != nil {
			return false, err
		}
		if !there {
			continue // It has ended.
		}
		counter, handles, err := position(pid, thread.Name())
		if err != nil {
			return false, err
		}
		if handles || from <= counter && counter < to {
			return false, nil
		}
	}
	return true, nil
}

// stands waits until a thread is stopped, and reports whether it is there.
func stands(pid int, thread string) (bool, error) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(runs) {
		stat, err := os.ReadFile(proc(pid, "task", thread, "stat"))
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("clock: %w", err)
		}
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; bytes.HasPrefix(state, []byte(" T")) {
			return true, nil
		}
	}
	return false, fmt.Errorf("clock: process %d does not stop", pid)
}

// position is the program counter of a thread that stands, and whether it handles a signal: Go's handlers block all signals.
func position(pid int, thread string) (counter uint64, handles bool, err error) {
	at, err := os.ReadFile(proc(pid, "task", thread, "syscall"))
	if err != nil {
		return 0, false, fmt.Errorf("clock: %w", err)
	}
	fields := strings.Fields(string(at)) // the program counter is the last
	if len(fields) == 0 {
		return 0, false, fmt.Errorf("clock: nothing says where thread %s of process %d is", thread, pid)
	}
	if _, err := fmt.Sscanf(fields[len(fields)-1], "0x%x", &counter); err != nil {
		return 0, false, fmt.Errorf("clock: thread %s of process %d is at %q", thread, pid, at)
	}
	status, err := os.ReadFile(proc(pid, "task", thread, "status"))
	if err != nil {
		return 0, false, fmt.Errorf("clock: %w", err)
	}
	_, after, _ := strings.Cut(string(status), "SigBlk:")
	var blocked uint64
	if _, err := fmt.Sscanf(after, "%x", &blocked); err != nil {
		return 0, false, fmt.Errorf("clock: which signals thread %s of process %d blocks: %w", thread, pid, err)
	}
	return counter, blocked&(1<<(syscall.SIGURG-1)) != 0, nil
}
