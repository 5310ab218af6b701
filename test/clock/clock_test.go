// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const tellsVariable = "CLOCK_TELLS"

// TestMain is also the process whose clock is set: it tells the time whenever it is asked, and how long it has run by the clock of timers.
func TestMain(m *testing.M) {
	if os.Getenv(tellsVariable) == "" {
		os.Exit(m.Run())
	}
	began := time.Now()
	go func() { // so that it is often stopped while it asks for the time
		for {
			_ = time.Now()
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		now := time.Now()
		fmt.Println(now.UnixNano(), int64(now.Sub(began)))
	}
}

func TestSet(t *testing.T) {
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), tellsVariable+"=1")
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, child.Wait())
	})
	lines := bufio.NewScanner(stdout)
	ask := func() (ahead, ran time.Duration) {
		t.Helper()
		before := time.Now()
		_, err := fmt.Fprintln(stdin)
		require.NoError(t, err)
		require.True(t, lines.Scan())
		var now, since int64
		_, err = fmt.Sscan(lines.Text(), &now, &since)
		require.NoError(t, err)
		return time.Unix(0, now).Sub(before).Round(time.Minute), time.Duration(since)
	}
	_, last := ask() // The kernel maps its code after it has begun a process.
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		require.NoError(t, Set(child.Process.Pid, ahead))
		is, ran := ask()
		require.Equal(t, ahead, is)
		require.Greater(t, ran, last, "the clock of timers goes on")
		require.Less(t, ran-last, time.Minute, "the clock of timers goes on")
		last = ran
	}
}
