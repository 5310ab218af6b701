// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// helperEnv makes the test binary start a cluster, print its pids and hang, for TestParentDeath.
const helperEnv = "FRESH_KCM_TEST_CLUSTER_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(helperEnv)
	if dir == "" {
		os.Exit(m.Run())
	}
	ctx := context.Background()
	c, err := Start(ctx, Options{Dir: dir, Nodes: NodeOptions{Count: 3}, KCMs: []KCMOptions{{Arm: ArmU1}}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// A stopped process must not escape either.
	if err := c.Kwok().Pause(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(c.Components(ctx)); err != nil {
		os.Exit(1)
	}
	select {}
}

// running is false for zombies, which are left to an init that may not reap.
func running(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

func TestParentDeath(t *testing.T) {
	t.Parallel()
	needBinaries(t, ArmU1)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	require.NoError(t, err, "the helper has not started its cluster")
	var components []Status
	require.NoError(t, json.Unmarshal(line, &components))
	require.Len(t, components, 5)
	for _, s := range components {
		require.True(t, running(s.PID), "%s, pid %d", s.Name, s.PID)
	}
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	for _, s := range components {
		require.Eventually(t, func() bool { return !running(s.PID) }, time.Minute, 10*time.Millisecond,
			"%s, pid %d, outlives the process that started it", s.Name, s.PID)
	}
}

func TestProcessOutlivesTheThreadThatAskedForIt(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	type result struct {
		p   *process
		err error
	}
	results := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		p, err := startProcess([]string{"/bin/sh", "-c", "exec sleep 60"}, nil, log)
		results <- result{p, err}
	}()
	r := <-results
	require.NoError(t, r.err)
	select {
	case <-r.p.done:
		t.Fatalf("it died with the thread: %s", r.p.exitStatus())
	case <-time.After(300 * time.Millisecond): // for nothing to happen, there is no condition to wait for
	}
	for range 3 {
		require.NoError(t, pauseProcess(r.p))
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.p.pid()))
		require.NoError(t, err)
		require.Contains(t, string(stat), ") T ", "it has stopped")
		require.NoError(t, resumeProcess(r.p))
	}
	require.NoError(t, pauseProcess(r.p))
	require.NoError(t, r.p.terminate(5*time.Second), "a paused process ends on SIGTERM")
	require.Contains(t, r.p.exitStatus(), "terminated")
	require.NoError(t, processGroupGone(r.p.pid()))
	require.NoError(t, r.p.kill(), "killing what is gone")
}
