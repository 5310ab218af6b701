// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report says what a run broke.
package report

import (
	"fmt"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/validate"
)

// Text is a history and what it broke.
func Text(s schedule.Schedule, found []validate.Violation) string {
	var b strings.Builder
	b.WriteString(s.String())
	for _, v := range found {
		fmt.Fprintf(&b, "worse: %s\n", v)
	}
	return b.String()
}

// Records are the figures of both arms.
func Records(s schedule.Schedule, stock, ours validate.Record) string {
	var b strings.Builder
	for _, o := range validate.Owners(s) {
		for _, arm := range []struct {
			name string
			r    validate.Record
		}{{"stock", stock}, {"ours ", ours}} {
			fmt.Fprintf(&b, "%s %s %v\n    status not of its pods: %v\n    pods not of its spec: %v\n    pods too many: %v\n",
				arm.name, o, arm.r.Requests[o], arm.r.Untold[o], arm.r.Undone[o], arm.r.Excess[o])
		}
	}
	for _, v := range s.Values() {
		o := validate.ValueOwner(v)
		fmt.Fprintf(&b, "%s, stock %v, ours %v\n    withheld, stock: %v\n    withheld, ours:  %v\n    overdone, stock: %v\n    overdone, ours:  %v\n",
			v, stock.Requests[o], ours.Requests[o], stock.Withheld[v], ours.Withheld[v], stock.Overdone[v], ours.Overdone[v])
	}
	for _, service := range s.Services {
		o := validate.ServiceOwner(service.Name)
		fmt.Fprintf(&b, "%s, stock %v, ours %v\n    missing, stock: %v\n    missing, ours:  %v\n    stray, stock: %v\n    stray, ours:  %v\n",
			o, stock.Requests[o], ours.Requests[o], stock.Missing[o], ours.Missing[o], stock.Stray[o], ours.Stray[o])
	}
	for _, f := range s.Families {
		fmt.Fprintf(&b, "%s %s\n    garbage, stock: %v\n    garbage, ours:  %v\n    lingering, stock: %v\n    lingering, ours:  %v\n",
			f.Kind, f.Name, stock.Garbage[f.Name], ours.Garbage[f.Name], stock.Lingering[f.Name], ours.Lingering[f.Name])
	}
	if len(s.Families) > 0 {
		fmt.Fprintf(&b, "garbage collector, stock: %v and %d polls, ours: %v and %d polls\n", stock.Collecting, stock.Polls, ours.Collecting, ours.Polls)
	}
	for _, c := range validate.ClaimNames(s) {
		fmt.Fprintf(&b, "%s\n    lacking, stock: %v\n    lacking, ours:  %v\n    kept, stock: %v\n    kept, ours:  %v\n",
			c, stock.Lacking[c], ours.Lacking[c], stock.Kept[c], ours.Kept[c])
	}
	if len(s.Claimers) > 0 {
		fmt.Fprintf(&b, "controller of claims, stock: %v, ours: %v\n%s\nstock:\n%s\n", stock.Claiming, ours.Claiming, ours.Claims, stock.Claims)
	}
	for _, a := range s.Autoscalers {
		fmt.Fprintf(&b, "%s, replicas at the end, stock %d, ours %d\n    too few, stock: %v\n    too few, ours:  %v\n    too many, stock: %v\n    too many, ours:  %v\n",
			a.Name, stock.Replicas[a.Name], ours.Replicas[a.Name], stock.Few[a.Name], ours.Few[a.Name], stock.Many[a.Name], ours.Many[a.Name])
	}
	if len(s.Autoscalers) > 0 {
		fmt.Fprintf(&b, "controller of autoscalers, stock: %v, ours: %v\n", stock.Scaling, ours.Scaling)
	}
	for _, v := range s.Volumes {
		fmt.Fprintf(&b, "%s\n    lacking, stock: %v\n    lacking, ours:  %v\n    attached, stock: %v\n    attached, ours:  %v\n",
			v.Name, stock.Detached[v.Name], ours.Detached[v.Name], stock.Attached[v.Name], ours.Attached[v.Name])
	}
	if len(s.Volumes) > 0 {
		fmt.Fprintf(&b, "attach/detach controller, stock: %v, ours: %v\n%s\nstock:\n%s\n", stock.Attaching, ours.Attaching, ours.Volumes, stock.Volumes)
	}
	fmt.Fprintf(&b, "proofs: %v\nunjustified, stock: %v\n", ours.Probes, stock.Unjustified)
	return b.String()
}
