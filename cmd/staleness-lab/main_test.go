// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

func TestBadInput(t *testing.T) {
	// Nothing that exists, so that none of these can start anything.
	t.Setenv("FRESH_KCM_BIN_DIR", filepath.Join(t.TempDir(), "none"))
	for _, test := range []struct{ args, want string }{
		{"up --nodes 0", "--nodes 0: at least one node is required"},
		{"up --nodes -5", "--nodes -5: at least one node is required"},
		{"up --nodes many", `invalid argument "many"`},
		{"up --feature-gates Foo", `invalid argument "Foo" for "--feature-gates"`},
		{"up --feature-gates Foo=perhaps", `invalid argument "Foo=perhaps" for "--feature-gates"`},
		{"up there", `unknown command "there"`},
		{"up --kubeconfig x", "unknown flag: --kubeconfig"},
		{"up", "etcd: run \"make build\""},
		{"demo --nodes 0", "--nodes 0: at least one node is required"},
		{"demo --arms U0,X", `unknown arm "X"`},
		{"demo --arms=", "--arms: name at least one arm"},
		{"demo --story z", `unknown story "z": choose from [a b c]`},
		{"demo", "etcd: run \"make build\""},
		{"hold", "hold takes a resource, such as nodes, got 0 arguments"},
		{"hold nodes pods", "hold takes a resource, such as nodes, got 2 arguments"},
		{"hold nodes --for 0s", "--for 0s: the duration must be positive"},
		{"hold nodes --for long", `invalid argument "long" for "--for"`},
		{"hold nodes", `no lab runs here: start one with "make run"`},
		{"kill-node", "kill-node takes a node, such as node-0000, got 0 arguments"},
		{"refuse-pods now", `unknown command "now"`},
		{"sideways", `unknown command "sideways"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			command := newCommand()
			command.SetArgs(strings.Fields(test.args))
			command.SetOut(io.Discard)
			err := command.ExecuteContext(t.Context())
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "\n", "one line")
		})
	}
	require.Equal(t, 1, run([]string{"up", "--nodes", "0"}), "exit code")
}

func TestUnknownGate(t *testing.T) {
	needBinaries(t, controlplane.ArmP)
	for gates, want := range map[string]string{
		"Foo=true":         "kube-controller-manager refuses these --feature-gates: unrecognized feature gate: Foo",
		"AtomicFIFO=false": "--feature-gates=AtomicFIFO=true",
	} {
		command := newCommand()
		command.SetArgs([]string{"up", "--feature-gates", gates})
		err := command.ExecuteContext(t.Context())
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "\n", "one line")
	}
}

func TestDirOfAnotherCluster(t *testing.T) {
	needBinaries(t, controlplane.ArmP)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "pki"), 0o700))
	command := newCommand()
	command.SetArgs([]string{"up", "--dir", dir, "--state-file", filepath.Join(t.TempDir(), "lab.json")})
	err := command.ExecuteContext(t.Context())
	require.ErrorContains(t, err, dir+" holds the files of another cluster")
	require.NotContains(t, err.Error(), "\n", "one line")
}

func TestPlanKeepsItsOrder(t *testing.T) {
	plan, err := newPlan([]string{"P", "U1"}, []string{"b", "a"})
	require.NoError(t, err)
	require.Equal(t, []controlplane.Arm{controlplane.ArmU1, controlplane.ArmP}, plan.Arms)
	require.Equal(t, "a", plan.Stories[0].ID)
	require.Equal(t, "b", plan.Stories[1].ID)
}

func TestHelp(t *testing.T) {
	var out strings.Builder
	command := newCommand()
	command.SetArgs([]string{"demo", "--help"})
	command.SetOut(&out)
	require.NoError(t, command.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "a  a NoExecute taint")
	require.Contains(t, out.String(), "b  all nodes die at once")
	require.Contains(t, out.String(), "c  a StatefulSet whose claims go with its pods")
}

// needBinaries skips a test that runs a cluster where nothing has been built, or fails it where it must not
// be skipped.
func needBinaries(t *testing.T, arms ...controlplane.Arm) string {
	t.Helper()
	dir, err := controlplane.FindBinDir()
	require.NoError(t, err)
	if err := controlplane.CheckBinaries(dir, arms...); err != nil {
		if os.Getenv("FRESH_KCM_REQUIRE_BINARIES") == "1" {
			t.Fatal(err)
		}
		t.Skipf("not run: %v", err)
	}
	return dir
}
