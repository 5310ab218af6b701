// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestABrokenPipeEndsTheCommandOnlyIfItIsItsOutput(t *testing.T) {
	reader, out, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	ctx, stop := untilStopped(out)
	defer stop()

	otherReader, other, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, otherReader.Close())
	_, err = other.WriteString("to nobody")
	require.ErrorIs(t, err, syscall.EPIPE)
	require.NoError(t, other.Close())
	select {
	case <-ctx.Done():
		t.Fatal("it ended because of a pipe that is not its output")
	case <-time.After(200 * time.Millisecond):
	}

	require.NoError(t, reader.Close())
	_, err = out.WriteString("to nobody")
	require.ErrorIs(t, err, syscall.EPIPE)
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("it did not end though nobody reads its output")
	}
}
