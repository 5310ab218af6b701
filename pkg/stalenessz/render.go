// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessz

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

//go:embed stalenessz.html
var htmlSource string

var htmlPage = template.Must(template.New("stalenessz").Parse(htmlSource))

// Size of the history line, in pixels, and the age at its top.
const (
	lineStep   = 2
	lineHeight = 18
	lineTop    = 30 * time.Second
)

// AgeText is the age for a person.
func (c cacheView) AgeText() string {
	if c.Proven.IsZero() {
		return "–"
	}
	return seconds(c.Age)
}

// EveryText is how often the cache is asked about, for a person.
func (c cacheView) EveryText() string { return seconds(c.Every) }

// LagText is the lag for a person.
func (c cacheView) LagText() string {
	switch {
	case c.Lag == stalenessmonitor.Lag{}:
		return "0"
	case c.Lag.Queue == 0:
		return fmt.Sprintf("%d in the watch", c.Lag.Watch)
	case c.Lag.Watch == 0:
		return fmt.Sprintf("%d in the queue", c.Lag.Queue)
	}
	return fmt.Sprintf("%d in the watch, %d in the queue", c.Lag.Watch, c.Lag.Queue)
}

// Name is the resource as kubectl writes it.
func (c cacheView) Name() string { return c.Resource.GroupResource().String() }

// Bars are the points of the history line.
func (c cacheView) Bars() []bar {
	var out []bar
	for i, s := range c.History {
		h := lineHeight
		if s.Age >= 0 {
			h = max(1, min(lineHeight, int(lineHeight*s.Age/lineTop)))
		}
		out = append(out, bar{X: i * lineStep, Y: lineHeight - h, H: h, State: s.State})
	}
	return out
}

type bar struct {
	X, Y, H int
	State   stalenessmonitor.State
}

// Waited is how long, for a person.
func (v view) Waited(w Wait) string { return seconds(v.Now.Sub(w.Since)) }

// For is how long a cache has been in its state.
func (v view) For(c cacheView) string { return seconds(v.Now.Sub(c.Since)) }

// Summary counts the caches by state.
func (v view) Summary() string {
	var parts []string
	for _, s := range stalenessmonitor.States() {
		if n := v.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return fmt.Sprintf("%d caches: %s%s", v.CachesTotal, strings.Join(parts, ", "), shown(len(v.Caches), v.CachesTotal))
}

// LagText is the lag for a person.
func (h handlerView) LagText() string { return seconds(h.Lag) }

// Moves says whether the handler goes on.
func (h handlerView) Moves() string {
	if h.Stalled {
		return "no"
	}
	return "yes"
}

// Changes is how far the handler is behind, in resource versions.
func (h handlerView) Changes() string {
	if h.Delivered == "" {
		return "–"
	}
	return strconv.FormatUint(freshness.Distance(h.Delivered, h.Stored), 10)
}

// HandlerSummary counts the handlers.
func (v view) HandlerSummary() string {
	return fmt.Sprintf("%d of %d event handlers behind their informer's cache%s", v.BehindTotal, v.Handlers, shown(len(v.Behind), v.BehindTotal))
}

// WaitSummary counts what waits.
func (v view) WaitSummary() string {
	return fmt.Sprintf("%d waiting%s", v.WaitsTotal, shown(len(v.Waits), v.WaitsTotal))
}

// shown says how many rows there are if these are not all.
func shown(rows, total int) string {
	if rows == total {
		return ""
	}
	return fmt.Sprintf(" (%d are shown)", rows)
}

// Notice says what the tables cannot, or is empty.
func (v view) Notice() string {
	switch {
	case !v.Leading:
		return "This process is not the leader and runs no informers. Open this page on the leader (lease kube-system/kube-controller-manager)."
	case !v.Monitoring:
		return "The feature gate MonitorInformerStaleness is off: no cache is measured."
	}
	return ""
}

func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// text is the page for curl.
func (v view) text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "kube-controller-manager stalenessz\n%s\n\n", v.Now.UTC().Format(time.RFC3339))
	if notice := v.Notice(); notice != "" {
		b.WriteString(notice + "\n\n")
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	if len(v.Caches) > 0 {
		fmt.Fprintf(&b, "%s\n\n", v.Summary())
		fmt.Fprintln(table, "RESOURCE\tVERSION\tSTATE\tFOR\tAGE AT MOST\tASKED EVERY\tLAG\tOBJECTS\tREASON")
		for _, c := range v.Caches {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", c.Name(), c.Resource.Version, c.State, v.For(c), c.AgeText(), c.EveryText(), c.LagText(), c.Objects, strings.TrimSuffix(c.Reason+": "+c.Detail, ": "))
		}
		table.Flush()
		b.WriteString("\n")
	}
	if v.Handlers > 0 {
		fmt.Fprintf(&b, "%s\n\n", v.HandlerSummary())
	}
	if len(v.Behind) > 0 {
		fmt.Fprintln(table, "HANDLER\tRESOURCE\tLAG\tMOVES\tBEHIND (RVS)\tDELIVERED\tCACHE")
		for _, h := range v.Behind {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", h.Name, h.Resource, h.LagText(), h.Moves(), h.Changes(), h.Delivered, h.Stored)
		}
		table.Flush()
		b.WriteString("\n")
	}
	b.WriteString(v.WaitSummary() + "\n")
	if len(v.Waits) > 0 {
		fmt.Fprintln(table, "\nCONTROLLER\tOWNER\tCACHE\tWAITED\tREASON\tFOR\tWHY")
		for _, wait := range v.Waits {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", wait.Controller, wait.Owner, wait.Resource, v.Waited(wait), wait.Reason, wait.For, wait.Why)
		}
		table.Flush()
	}
	_, err := io.WriteString(w, b.String())
	return err
}
