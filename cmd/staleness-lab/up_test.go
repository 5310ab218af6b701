// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// TestUp runs the real command as a user does, but with its output in a pipe.
func TestUp(t *testing.T) {
	binDir := needBinaries(t, controlplane.ArmP)
	binary := buildLab(t)
	t.Run("interrupted when ready", func(t *testing.T) {
		u := startUp(t, binary, binDir, "--nodes", "20", "--feature-gates", "MonitorInformerStaleness=false")
		u.waitFor("ready: 20 nodes Ready and sample on every one")
		require.NotEmpty(t, u.processes(), "the cluster's processes")
		require.Contains(t, u.output.String(), "export KUBECONFIG="+u.dir)
		require.Regexp(t, `gates on: .*StaleControllerConsistency .*; off: MonitorInformerStaleness\n`, u.output.String())
		require.Contains(t, u.output.String(), "nodes: 20/20 Ready")
		require.Contains(t, u.output.String(), "sample: 20 desired, 20 current, 20 ready")
		u.end(syscall.SIGINT)
	})
	t.Run("interrupted while starting", func(t *testing.T) {
		u := startUp(t, binary, binDir, "--nodes", "20")
		u.waitFor("kube-apiserver-0: starting")
		u.end(syscall.SIGTERM)
	})
	t.Run("a component dies", func(t *testing.T) {
		u := startUp(t, binary, binDir, "--nodes", "1")
		u.waitFor("ready: 1 nodes")
		u.kill("kube-scheduler")
		u.waitFor("kube-scheduler: died: signal: killed")
		u.waitFor("kube-scheduler: died and was started again")
		u.kill("etcd")
		require.Equal(t, 1, u.wait(), "exit code")
		require.Contains(t, u.errors.String(), "etcd died (signal: killed)")
		require.Contains(t, u.output.String(), "etcd: died: signal: killed")
		require.Empty(t, u.processes(), "processes left behind")
		require.DirExists(t, u.dir, "its logs are kept")
		require.NoError(t, os.RemoveAll(u.dir))
	})
}

func buildLab(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "staleness-lab")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

// up is a running "staleness-lab up".
type up struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  *bufio.Scanner
	output strings.Builder
	errors bytes.Buffer
	dir    string
	// state is the file by which a second command finds it.
	state string
}

func startUp(t *testing.T, binary, binDir string, args ...string) *up {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	state := filepath.Join(t.TempDir(), "lab.json")
	u := &up{t: t, state: state, cmd: exec.CommandContext(ctx, binary, append([]string{"up", "--state-file", state}, args...)...)}
	u.cmd.Env = append(os.Environ(), "FRESH_KCM_BIN_DIR="+binDir)
	// A context that ends interrupts it, so that a test that fails leaves nothing behind either.
	u.cmd.Cancel = func() error { return u.cmd.Process.Signal(syscall.SIGINT) }
	u.cmd.WaitDelay = 30 * time.Second
	u.cmd.Stderr = &u.errors
	stdout, err := u.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, u.cmd.Start())
	t.Cleanup(func() { _ = u.cmd.Wait() })
	u.lines = bufio.NewScanner(stdout)
	_, logs, _ := strings.Cut(u.waitFor("logs: "), "logs: ")
	u.dir = filepath.Dir(logs)
	return u
}

// waitFor reads until a line contains the text, and returns it.
func (u *up) waitFor(text string) string {
	u.t.Helper()
	for u.lines.Scan() {
		u.output.WriteString(u.lines.Text() + "\n")
		require.NotContains(u.t, u.lines.Text(), "\x1b", "control sequences in a pipe")
		if strings.Contains(u.lines.Text(), text) {
			return u.lines.Text()
		}
	}
	require.FailNow(u.t, "the output ended without "+text, "%s%s", u.output.String(), u.errors.String())
	return ""
}

// wait reads the rest and returns the exit code.
func (u *up) wait() int {
	u.t.Helper()
	for u.lines.Scan() {
		u.output.WriteString(u.lines.Text() + "\n")
	}
	_ = u.cmd.Wait()
	return u.cmd.ProcessState.ExitCode()
}

func (u *up) end(sig syscall.Signal) {
	u.t.Helper()
	begin := time.Now()
	require.NoError(u.t, u.cmd.Process.Signal(sig))
	require.Zero(u.t, u.wait(), "exit code; %s", u.errors.String())
	u.t.Logf("%v ended it in %v", sig, time.Since(begin).Round(time.Millisecond))
	require.Empty(u.t, u.errors.String())
	require.Empty(u.t, u.processes(), "processes left behind")
	require.NoDirExists(u.t, u.dir)
	require.NoFileExists(u.t, u.state)
}

// kill kills a component.
func (u *up) kill(component string) {
	u.t.Helper()
	for pid, argv := range u.processes() {
		if filepath.Base(strings.Split(argv, "\x00")[0]) == component {
			require.NoError(u.t, syscall.Kill(pid, syscall.SIGKILL))
			return
		}
	}
	require.FailNow(u.t, "no process of "+component)
}

// processes returns the processes that have the lab's directory in their arguments, which all of its
// components do.
func (u *up) processes() map[int]string {
	u.t.Helper()
	out := map[int]string{}
	entries, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(u.t, err)
	for _, entry := range entries {
		argv, err := os.ReadFile(filepath.Join(entry, "cmdline"))
		if err != nil || !bytes.Contains(argv, []byte(u.dir+"/")) {
			continue // gone, or not ours
		}
		pid, err := strconv.Atoi(filepath.Base(entry))
		require.NoError(u.t, err)
		out[pid] = string(argv)
	}
	return out
}
