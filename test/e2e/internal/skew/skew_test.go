// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"testing"
	"time"
)

func TestShift(t *testing.T) {
	const text = `{"a":"2026-01-01T00:00:10Z","b":"2026-01-01T00:00:10.123456Z","c":"2026-01-01","d":"at 2026-01-01T00:00:10Z","e":"2026-99-01T00:00:10Z"}`
	const older = `{"a":"2025-12-31T23:55:10Z","b":"2025-12-31T23:55:10.123456Z","c":"2026-01-01","d":"at 2026-01-01T00:00:10Z","e":"2026-99-01T00:00:10Z"}`
	got, n := shift([]byte(text), 5*time.Minute)
	if string(got) != older || n != 2 {
		t.Errorf("%d times: %s", n, got)
	}
	if back, _ := shift(got, -5*time.Minute); string(back) != text {
		t.Errorf("and back: %s", back)
	}
}

func TestInJSON(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                    "application/json",
		"application/vnd.kubernetes.protobuf": "application/json",
		"application/vnd.kubernetes.protobuf;as=X,application/json;as=X,application/json": "application/json;as=X,application/json",
	} {
		if got := inJSON(accept); got != want {
			t.Errorf("%q: %q", accept, got)
		}
	}
}
