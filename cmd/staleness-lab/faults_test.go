// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// TestFaults does on a real lab what its screen says, word for word where it is a command line.
func TestFaults(t *testing.T) {
	binDir := needBinaries(t, controlplane.ArmP)
	if _, err := exec.LookPath(filepath.Join(binDir, "kubectl")); err != nil {
		if os.Getenv("FRESH_KCM_REQUIRE_BINARIES") == "1" {
			t.Fatal(err)
		}
		t.Skipf("not run: %v", err)
	}
	f := &faultTest{T: t, binary: buildLab(t)}
	f.up = startUp(t, f.binary, binDir, "--nodes", "20")
	f.up.waitFor("ready: 20 nodes")
	f.exports = f.said("export KUBECONFIG=") + "\n" + f.said("export PATH=")

	t.Run("the page", func(t *testing.T) {
		if _, err := exec.LookPath("curl"); err != nil {
			t.Skipf("not run: %v", err)
		}
		line := f.said("/stalenessz at ")
		for until := time.Now().Add(30 * time.Second); ; { // The monitor finds the informers once they have started.
			page := f.shell(line[strings.Index(line, "curl "):])
			if strings.Contains(page, "daemonsets.apps") {
				break
			}
			require.True(t, time.Now().Before(until), page)
		}
	})
	t.Run("nodes held", func(t *testing.T) {
		before := f.pods()
		hold := f.start("hold", "nodes", "--for", "60s")
		_, label, _ := strings.Cut(hold.waitFor("try now: "), "try now: ")
		_, patch, _ := strings.Cut(hold.waitFor("and: kubectl patch"), "and: ")
		hold.waitFor("its cache of nodes is stalled") // A deletion may rest on a proof from up to 2 s before.
		f.shell(label)
		f.shell(patch)
		hold.waitFor("default/sample waits for nodes: a proof that the cache is fresh, to delete pods")
		require.Equal(t, before, f.pods(), "pods, while nodes are held")
		hold.waitFor("and nothing waits for it")
		hold.waitFor("Stock upstream: deletes DaemonSet pods")
		require.Zero(t, hold.wait())
		require.Equal(t, before, f.pods(), "pods, afterwards")
	})
	t.Run("a node dead", func(t *testing.T) {
		kill := f.start("kill-node", "node-0003", "--for", "80s")
		kill.waitFor("node node-0003 is Ready=Unknown")
		require.Contains(t, f.shell("kubectl get node node-0003"), "NotReady")
		kill.waitFor("it read leases of nodes live 0 times")
		kill.waitFor("the node is Ready without taints")
		require.Zero(t, kill.wait())
	})
	t.Run("pods refused, until Ctrl-C", func(t *testing.T) {
		refuse := f.start("refuse-pods", "--for", "10m")
		refuse.waitFor("Fresh KCM: has tried ")
		f.up.waitFor("faults in force: refuse-pods")
		require.Contains(t, f.shell("kubectl get resourcequota"), "pods: ")
		require.NoError(t, refuse.cmd.Process.Signal(syscall.SIGINT))
		require.Zero(t, refuse.wait())
		f.up.waitFor("faults in force: none")
		require.NotContains(t, f.shell("kubectl get resourcequota 2>&1"), "pods: ")
	})
	t.Run("what there is not", func(t *testing.T) {
		for args, want := range map[string]string{
			"hold unicorns":                 `the cluster has no resource "unicorns"`,
			"hold events":                   "kube-controller-manager does not watch events",
			"kill-node node-7777":           `nodes "node-7777" not found`,
			"up --state-file " + f.up.state: "a lab runs already",
		} {
			c := f.start(strings.Fields(args)...)
			require.Equal(t, 1, c.wait(), args)
			require.Contains(t, c.errors.String(), want)
			require.Equal(t, 1, strings.Count(c.errors.String(), "\n"), "one line")
		}
	})
	t.Run("stopped with a node dead", func(t *testing.T) {
		kill := f.start("kill-node", "node-0004", "--for", "10m")
		kill.waitFor("is dead for 10m0s")
		f.up.end(syscall.SIGINT)
		require.Equal(t, 1, kill.wait())
		require.Contains(t, kill.errors.String(), "the lab was stopped")
	})
}

// faultTest is a lab and those who play with it.
type faultTest struct {
	*testing.T
	binary, exports string
	up              *up
}

// said returns what the lab has said from a text to the end of its line.
func (f *faultTest) said(text string) string {
	f.Helper()
	said := f.up.output.String()
	i := strings.Index(said, text)
	require.GreaterOrEqual(f, i, 0, "%s\n%s", text, said)
	line, _, _ := strings.Cut(said[i:], "\n")
	return line
}

// shell runs a line as in another terminal.
func (f *faultTest) shell(line string) string {
	f.Helper()
	out, err := exec.CommandContext(f.Context(), "bash", "-c", f.exports+"\n"+line).CombinedOutput()
	require.NoError(f, err, "%s: %s", line, out)
	return string(out)
}

func (f *faultTest) pods() string {
	f.Helper()
	return f.shell("kubectl get pods --sort-by=.metadata.name -o jsonpath='{.items[*].metadata.uid}'")
}

// start runs a second command.
func (f *faultTest) start(args ...string) *up {
	f.Helper()
	c := &up{t: f.T, cmd: exec.CommandContext(f.Context(), f.binary, append(args, "--state-file", f.up.state)...)}
	c.cmd.Stderr = &c.errors
	stdout, err := c.cmd.StdoutPipe()
	require.NoError(f, err)
	require.NoError(f, c.cmd.Start())
	c.lines = bufio.NewScanner(stdout)
	return c
}
