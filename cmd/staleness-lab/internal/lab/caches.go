// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/control"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/play"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// maxListed is how many caches, and how many waits, have a line of their own; the page has all.
const maxListed = 3

// cacheLines say how the caches are and who waits for what.
func (s Snapshot) cacheLines() []display.Line {
	const indent = "           "
	add := func(lines []display.Line, style display.Style, format string, args ...any) []display.Line {
		return append(lines, display.Line{Text: fmt.Sprintf(format, args...), Style: style})
	}
	if s.Page == nil {
		return nil
	}
	lines := add(nil, display.Normal, "Caches     %s", countStates(s.Page))
	if age := oldest(s.Page); age != "" {
		lines = add(lines, display.Normal, indent+"%s", age)
	}
	sick := sickCaches(s.Page)
	for i, c := range sick {
		if i == maxListed {
			lines = add(lines, display.Bad, indent+"and %d more", len(sick)-i)
			break
		}
		lines = add(lines, display.Bad, indent+"%s", c)
	}
	waits := "nothing waits for a cache"
	if s.Page.WaitsTotal > 0 {
		waits = fmt.Sprintf("%d wait for a cache", s.Page.WaitsTotal)
	}
	lines = add(lines, display.Normal, "Waits      %s", waits)
	for i, w := range s.Page.Waits {
		if i == maxListed {
			lines = add(lines, display.Faint, indent+"and %d more", s.Page.WaitsTotal-i)
			break
		}
		lines = add(lines, display.Bad, indent+"%.0f s: %s", w.WaitSeconds, play.WaitText(w))
	}
	return lines
}

// states in the order in which they are shown.
var states = []stalenessmonitor.State{
	stalenessmonitor.Fresh, stalenessmonitor.Quiet, stalenessmonitor.Lagging, stalenessmonitor.Stalled, stalenessmonitor.Unknown,
}

func countStates(page *stalenessz.Stalenessz) string {
	n := map[stalenessmonitor.State]int{}
	for _, c := range page.Caches {
		n[c.State]++
	}
	var parts []string
	for _, state := range states {
		if n[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[state], state))
		}
	}
	if len(parts) == 0 {
		return "none is measured"
	}
	return strings.Join(parts, ", ")
}

// oldest names the oldest cache that protected controllers read, and the oldest of the unprotected others.
func oldest(page *stalenessz.Stalenessz) string {
	var parts []string
	for _, side := range []struct {
		label     string
		protected bool
	}{{"oldest %s s (%s)", true}, {"unprotected %s s (%s)", false}} {
		age, name := -1.0, ""
		for _, c := range page.Caches {
			if c.Protected == side.protected && c.AgeSeconds != nil && *c.AgeSeconds > age {
				age, name = *c.AgeSeconds, c.Resource // without its group, so that the line fits
			}
		}
		if name != "" {
			parts = append(parts, fmt.Sprintf(side.label, fmt.Sprintf("%.0f", age), name))
		}
	}
	return strings.Join(parts, ", ")
}

// sickCaches are the caches with which something is amiss. One that has not had its first turn is none.
func sickCaches(page *stalenessz.Stalenessz) []string {
	var out []string
	for _, c := range page.Caches {
		if play.Healthy(c) || c.State == stalenessmonitor.Unknown && c.Reason == "NotProbed" {
			continue
		}
		out = append(out, fmt.Sprintf("%s is %s (%s)", play.CacheName(c), c.State, c.Reason))
	}
	return out
}

// faultLines say what a second command has asked for.
func (s Snapshot) faultLines() []string {
	var out []string
	for _, f := range s.Faults {
		left := "healing"
		if d := time.Until(f.Begin.Add(f.For)); d > 0 {
			left = display.Clock(d) + " left"
		}
		out = append(out, fmt.Sprintf("Fault      %s, %s", faultName(f.Fault), left))
	}
	return out
}

func faultName(f control.Fault) string { return strings.TrimSpace(string(f.Kind) + " " + f.Name) }

// invitation says what to do in another terminal.
func (s Snapshot) invitation() []display.Line {
	lines := []display.Line{
		{Text: "In another terminal:", Style: display.Bold},
		{Text: "  export KUBECONFIG=" + s.Kubeconfig},
	}
	if s.PageConfig == "" {
		return lines
	}
	for _, text := range []string{
		"export PATH=" + s.BinDir + ":$PATH",
		"kubectl get pods --watch",
		"curl -K " + s.PageConfig,
		"staleness-lab hold nodes --for 60s",
		"staleness-lab kill-node " + s.Node + " --for 90s",
		"staleness-lab refuse-pods --for 30s",
	} {
		lines = append(lines, display.Line{Text: "  " + text})
	}
	return lines
}
