// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"flag"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// deafTB takes the failure of a property that is meant to fail.
type deafTB struct {
	rapid.TB
	failed bool
	msg    string
}

func (d *deafTB) Helper()                   {}
func (d *deafTB) Name() string              { return "mutant" }
func (d *deafTB) Log(...any)                {}
func (d *deafTB) Logf(string, ...any)       {}
func (d *deafTB) Errorf(f string, a ...any) { d.failed, d.msg = true, fmt.Sprintf(f, a...) }
func (d *deafTB) Failed() bool              { return d.failed }
func (d *deafTB) Fail()                     { d.failed = true }
func (d *deafTB) FailNow()                  { d.failed = true; runtime.Goexit() }
func (d *deafTB) Fatalf(f string, a ...any) { d.Errorf(f, a...); d.FailNow() }

// mutants are the ways to break the tracker that every test of it as a whole must notice.
var mutants = []struct {
	name string
	f    faults
	// seed is an input of FuzzModel that shows it.
	seed string
}{
	{"records dropped", faults{dropWrite: 3}, "S00NS10NS20NE2"},
	{"wake lost", faults{dropWake: 3}, "Q7@;1B99FF"},
	{"rewind ignored", faults{dropFence: 1}, ";"},
	{"relist ignored", faults{dropRelist: 1}, "S01L01E1"},
}

// TestModelCatchesMutants shows that the property test can fail.
func TestModelCatchesMutants(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "0s", "rapid.checks": "50000"} {
		f := flag.Lookup(name)
		old := f.Value.String()
		require.NoError(t, f.Value.Set(value))
		t.Cleanup(func() { _ = f.Value.Set(old) })
	}
	for _, tc := range mutants {
		t.Run(tc.name, func(t *testing.T) {
			tb := &deafTB{}
			done := make(chan struct{})
			go func() {
				defer close(done)
				rapid.Check(tb, func(rt *rapid.T) { newModel(tc.f).run(rt) })
			}()
			<-done
			require.True(t, tb.failed, "the mutant was not caught")
			t.Log(tb.msg)
		})
	}
}
