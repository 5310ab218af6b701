// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func start(t *testing.T, run Run) (s *Server, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "sub", "lab.json")
	s, err := Reserve(path)
	require.NoError(t, err)
	require.NoError(t, s.Serve(t.Context(), run))
	t.Cleanup(func() {
		require.NoError(t, s.Close(context.Background()))
		require.NoError(t, s.Release())
		require.NoFileExists(t, path)
	})
	return s, path
}

func TestAsk(t *testing.T) {
	asked := Fault{Kind: Hold, Name: "nodes", For: time.Minute}
	_, path := start(t, func(_ context.Context, fault Fault, say func(string)) error {
		say("one")
		say("two")
		if fault != asked {
			return os.ErrInvalid
		}
		return nil
	})
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	var said []string
	say := func(text string) { said = append(said, text) }
	require.NoError(t, Ask(t.Context(), path, asked, say))
	require.Equal(t, []string{"one", "two"}, said)
	require.EqualError(t, Ask(t.Context(), path, Fault{}, say), os.ErrInvalid.Error(), "the fault's own error")
}

func TestOnlyWhoHasTheTokenIsAnswered(t *testing.T) {
	_, path := start(t, func(context.Context, Fault, func(string)) error {
		t.Error("it ran")
		return nil
	})
	st, err := readStateFile(path)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(st.URL, "http://127.0.0.1:"), st.URL)
	for _, token := range []string{"", "Bearer ", "Bearer wrong", st.Token} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, st.URL, strings.NewReader(`{"kind":"hold"}`))
		require.NoError(t, err)
		request.Header.Set("Authorization", token)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusUnauthorized, response.StatusCode, token)
	}
}

// until runs until its context ends and says whether the fault was taken back.
func until(begun, undone chan<- struct{}) Run {
	return func(ctx context.Context, _ Fault, say func(string)) error {
		say("in force")
		close(begun)
		<-ctx.Done()
		close(undone)
		return ctx.Err()
	}
}

func TestTheClientsEndTakesTheFaultBack(t *testing.T) {
	begun, undone := make(chan struct{}), make(chan struct{})
	_, path := start(t, until(begun, undone))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	require.NoError(t, Ask(ctx, path, Fault{Kind: Hold}, func(string) {}))
	<-undone
}

func TestTheLabsEndTakesTheFaultBack(t *testing.T) {
	begun, undone := make(chan struct{}), make(chan struct{})
	s, path := start(t, until(begun, undone))
	go func() {
		<-begun
		_ = s.Close(context.Background())
	}()
	require.EqualError(t, Ask(t.Context(), path, Fault{Kind: Hold}, func(string) {}), stopped)
	<-undone
}

func TestNoLab(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lab.json")
	ask := func() error { return Ask(t.Context(), path, Fault{Kind: Hold}, func(string) {}) }
	require.ErrorContains(t, ask(), "no lab runs here: start one with \"make run\"")

	// What a lab that was killed left behind.
	left, err := json.Marshal(state{PID: 1, URL: "http://127.0.0.1:1", Token: "x"})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, left, 0o644))
	require.ErrorContains(t, ask(), "no lab runs here")

	s, err := Reserve(path)
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "a file from before")
	require.ErrorContains(t, ask(), "still starting")
	_, err = Reserve(path)
	require.ErrorContains(t, err, "a lab runs already (pid ")
	require.NotContains(t, err.Error(), "\n")
	require.NoError(t, s.Release())
	require.ErrorContains(t, ask(), "no lab runs here")
}
