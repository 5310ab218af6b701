// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane/gates"
)

var _ display.View = Snapshot{}

// Lines shows the whole lab.
func (s Snapshot) Lines(columns int) []display.Line {
	var lines []display.Line
	add := func(style display.Style, text string) {
		lines = append(lines, display.Line{Text: text, Style: style})
	}
	title, style := fmt.Sprintf("Fresh KCM lab: %s", s.Phase), display.Bold
	switch {
	case s.Phase == Ready:
		style = display.Good
		title += fmt.Sprintf(" after %s, running for %s", seconds(s.ReadyAfter), display.Clock(s.Elapsed))
	case s.Phase == Starting:
		title += ", " + display.Clock(s.Elapsed)
		if s.Waiting != "" {
			title += ", " + s.Waiting
		}
	}
	add(style, title)
	rows := [][]string{{"COMPONENT", "STATE", "PID", "VERSION", "RESTARTS"}}
	for _, c := range s.Components {
		rows = append(rows, []string{c.Name, string(c.State), pid(c), c.Version, strconv.Itoa(c.Restarts)})
	}
	for i, row := range display.Table(rows) {
		style := display.Normal
		switch {
		case i == 0:
			style = display.Faint
		case s.Components[i-1].State == controlplane.StateFailed:
			style = display.Bad
		}
		add(style, row)
		if i == 0 {
			continue
		}
		if c := s.Components[i-1]; c.Trouble != "" {
			add(display.Bad, "  "+c.Trouble)
			for _, line := range c.Tail {
				add(display.Faint, "  | "+line)
			}
		}
	}
	add(display.Normal, "")
	add(display.Normal, fmt.Sprintf("Nodes      %s %d/%d Ready", bar(s.NodesReady, s.NodesWanted), s.NodesReady, s.NodesWanted))
	add(display.Normal, fmt.Sprintf("DaemonSet  %s %s", bar(s.DaemonSet.Ready, s.NodesWanted), s.DaemonSet))
	lines = append(lines, s.cacheLines()...)
	for _, line := range s.faultLines() {
		add(display.Bad, line)
	}
	if s.Kubeconfig != "" {
		add(display.Normal, "")
		lines = append(lines, s.invitation()...)
	}
	if s.Phase == Starting || s.Phase == Ready {
		end := "Ctrl-C stops everything and removes " + s.Dir
		if !s.Temporary {
			end = "Ctrl-C stops everything and leaves " + s.Dir
		}
		add(display.Faint, end)
	}
	// What a low window leaves out comes last.
	add(display.Faint, "Logs: "+s.LogsDir)
	for _, line := range s.gateLines(columns) {
		add(display.Faint, line)
	}
	return lines
}

// gateLines lists the gates that are on and those that are off.
func (s Snapshot) gateLines(columns int) []string {
	var lines []string
	for _, side := range []struct {
		label string
		on    bool
	}{{"Gates on   ", true}, {"Gates off  ", false}} {
		if words := gates.Names(s.Gates, side.on); len(words) > 0 {
			lines = append(lines, display.Wrap(side.label, words, columns)...)
		}
	}
	return lines
}

// Facts are the same, for a pipe.
func (s Snapshot) Facts() []display.Fact {
	var facts []display.Fact
	add := func(key, format string, args ...any) {
		facts = append(facts, display.Fact{Key: key, Text: fmt.Sprintf(format, args...)})
	}
	add("logs", "logs: %s", s.LogsDir)
	for _, c := range s.Components {
		if c.Trouble != "" {
			add("trouble/"+c.Name, "%s: %s (restarts: %d)%s", c.Name, c.Trouble, c.Restarts, indented(c.Tail))
		}
		text := fmt.Sprintf("%s: %s", c.Name, c.State)
		if c.PID != 0 {
			text += fmt.Sprintf(", pid %d, version %s, restarts %d", c.PID, c.Version, c.Restarts)
		}
		add("component/"+c.Name, "%s", text)
	}
	if s.NodesReady > 0 {
		add("nodes", "nodes: %d/%d Ready", s.NodesReady, s.NodesWanted)
	}
	if s.DaemonSet != (DaemonSet{}) {
		add("daemonset", "%s: %s", sampleName, s.DaemonSet)
	}
	if len(s.Gates) > 0 {
		add("gates", "gates on: %s; off: %s", listed(gates.Names(s.Gates, true)), listed(gates.Names(s.Gates, false)))
	}
	if s.Kubeconfig != "" {
		add("kubeconfig", "export KUBECONFIG=%s", s.Kubeconfig)
	}
	if s.PageConfig != "" {
		add("kubectl", "export PATH=%s:$PATH", s.BinDir)
		add("page", "/stalenessz at %s: curl -K %s", s.PageURL, s.PageConfig)
		var faults []string
		for _, f := range s.Faults {
			faults = append(faults, faultName(f.Fault))
		}
		add("fault", "faults in force: %s", listed(faults))
		add("faults", "faults: staleness-lab hold nodes --for 60s, kill-node %s --for 90s, refuse-pods --for 30s", s.Node)
	}
	if s.Page != nil {
		sick := sickCaches(s.Page)
		text := "none but fresh and quiet ones"
		if len(sick) > 0 {
			text = strings.Join(sick[:min(len(sick), maxListed)], ", ")
			if len(sick) > maxListed {
				text += fmt.Sprintf(", and %d more", len(sick)-maxListed)
			}
		}
		add("caches", "caches: %s", text)
		add("waits", "waiting for a cache: %d", s.Page.WaitsTotal)
	}
	if s.Phase == Ready {
		// What was true then: a node lost later is said by the line about nodes.
		add("phase", "ready: %d nodes Ready and %s on every one, after %s", s.NodesWanted, sampleName, seconds(s.ReadyAfter))
	} else {
		add("phase", "%s", s.Phase)
	}
	return facts
}

// String says how far the DaemonSet is.
func (d DaemonSet) String() string {
	desired := "?"
	if d.Counted {
		desired = strconv.Itoa(d.Desired)
	}
	return fmt.Sprintf("%s desired, %d current, %d ready", desired, d.Current, d.Ready)
}

func pid(c Component) string {
	if c.PID == 0 {
		return "-"
	}
	return strconv.Itoa(c.PID)
}

// bar draws a part of a whole in twenty columns.
func bar(part, whole int) string {
	const width = 20
	full := 0
	if whole > 0 {
		full = min(part*width/whole, width)
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}

func indented(lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("\n| " + line)
	}
	return b.String()
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
