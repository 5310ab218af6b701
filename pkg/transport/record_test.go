// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ending is a body that tells its end apart from its last bytes, as HTTP/2 may, and notes that it has.
type ending struct {
	io.Reader
	err   error
	ended bool
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err != nil {
		e.ended = true
		return n, e.err
	}
	return n, nil
}

// A body is read to its end, even if as much as was promised has come: HTTP/2 resets the stream of one that is closed before.
func TestReadAllSeesTheEnd(t *testing.T) {
	const text = "some text"
	cut := errors.New("cut")
	for name, tc := range map[string]struct {
		length int64
		err    error
	}{
		"length known":     {int64(len(text)), nil},
		"empty":            {0, nil},
		"length unknown":   {-1, nil},
		"more than is due": {3, nil},
		"cut":              {1000, cut},
	} {
		t.Run(name, func(t *testing.T) {
			body := &ending{Reader: strings.NewReader(text), err: io.EOF}
			if tc.err != nil {
				body.err = tc.err
			}
			got, err := readAll(body, tc.length)
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, text, string(got))
			require.True(t, body.ended)
		})
	}
	body, n := strings.Repeat("x", 5000), int64(5000)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = readAll(strings.NewReader(body), n) }), 3.0, "it does not grow")
}
