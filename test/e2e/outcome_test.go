// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// How far ours may be behind stock (oracle N). Two turns of stock differ by as much.
const (
	// attemptSlack is how many tries more to create pods an owner may take that is refused, on average over the owners
	// of a kind in one history: each step of a backoff is as long as all before together, so one try falls on this
	// or that side of the end.
	attemptSlack = 1.0
	// attemptFactor and attemptExtra are for what somebody changes meanwhile, where a pod more is created or not as
	// the next change comes before or after it.
	attemptFactor, attemptExtra = 1.25, 5
	// requestFactor and requestExtra are for all other requests, without events, and for events.
	requestFactor, requestExtra = 1.25, 20
	// timeFactor and timeExtra are for the time to the end state, on a machine that does other things as well.
	timeFactor, timeExtra = 2, 5 * time.Second
	// reactionExtra is how much later the reaction in the middle may come: half of what it would be later by if each waited for
	// a read made once a second. The quickest quarter says less: beside other loads two turns differ there by as much as it takes.
	reactionExtra = 250 * time.Millisecond
)

// outcome is what one history came to on one arm.
type outcome struct {
	// Attempts are the tries to create pods, by the service account that made them.
	Attempts map[string]int
	// Requests are all others in the namespace but events, by their kind.
	Requests map[string]int
	Events   int
	// Took is the time to the end state, for a history that ends.
	Took time.Duration
	// Reactions are how long each reaction took.
	Reactions []time.Duration
}

// outcomes are those of all turns of an arm, by the name of the history.
type outcomes map[contender][]map[string]outcome

// of returns the mean of an arm's turns in one history.
func (o outcomes) of(c contender, t trouble) outcome {
	mean := outcome{Attempts: map[string]int{}, Requests: map[string]int{}}
	turns := len(o[c])
	for _, turn := range o[c] {
		one := turn[t.name]
		for account, n := range one.Attempts {
			mean.Attempts[account] += n
		}
		for kind, n := range one.Requests {
			mean.Requests[kind] += n
		}
		mean.Events += one.Events
		mean.Took += one.Took
		mean.Reactions = append(mean.Reactions, one.Reactions...)
	}
	for account := range mean.Attempts {
		mean.Attempts[account] = divide(mean.Attempts[account], turns)
	}
	for kind := range mean.Requests {
		mean.Requests[kind] = divide(mean.Requests[kind], turns)
	}
	mean.Events = divide(mean.Events, turns)
	mean.Took /= time.Duration(max(turns, 1))
	return mean
}

func divide(sum, n int) int { return (sum + n/2) / max(n, 1) }

func total(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}

// late returns the share q of the reactions, from none to all.
func (o outcome) late(q float64) time.Duration {
	if len(o.Reactions) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(o.Reactions))
	return sorted[int(q*float64(len(sorted)-1))]
}

// behind says in what ours is behind stock.
func (t trouble) behind(stock, ours outcome) (out []string) {
	worse := func(what string, got, limit, stock any) {
		out = append(out, fmt.Sprintf("%s: %s %v, at most %v, stock %v", t.name, what, got, limit, stock))
	}
	if t.happens == nil {
		for account, owners := range t.owners.Owners() {
			if got, limit := ours.Attempts[account], stock.Attempts[account]+int(attemptSlack*float64(owners)); got > limit {
				worse("attempts of "+account, got, limit, stock.Attempts[account])
			}
		}
	}
	for _, one := range []struct {
		what          string
		got, stock    int
		factor, extra float64
	}{
		{"attempts", total(ours.Attempts), total(stock.Attempts), attemptFactor, attemptExtra},
		{"other requests", total(ours.Requests), total(stock.Requests), requestFactor, requestExtra},
		{"events", ours.Events, stock.Events, requestFactor, requestExtra},
	} {
		if limit := int(one.factor*float64(one.stock) + one.extra); one.got > limit {
			worse(one.what, one.got, limit, one.stock)
		}
	}
	if limit := timeFactor*stock.Took + timeExtra; ours.Took > limit {
		worse("time", ours.Took, limit, stock.Took)
	}
	if limit := stock.late(0.5) + reactionExtra; ours.late(0.5) > limit {
		worse("time of the reaction in the middle", ours.late(0.5), limit, stock.late(0.5))
	}
	return out
}

// table shows what each history came to: of the kinds of requests those of which the arms made different numbers.
func (o outcomes) table(troubles []trouble) string {
	arms := slices.Sorted(maps.Keys(o))
	slices.Reverse(arms) // stock first
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "\nhistory\towners\twhat\t%s\n", strings.Join(asStrings(arms), "\t"))
	row := func(t trouble, owners, what string, different bool, of func(outcome) string) {
		var values []string
		for _, c := range arms {
			values = append(values, of(o.of(c, t)))
		}
		if !different || len(slices.Compact(slices.Clone(values))) > 1 {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.name, owners, what, strings.Join(values, "\t"))
		}
	}
	for _, t := range troubles {
		owners := t.owners.Owners()
		accounts, kinds := map[string]bool{}, map[string]bool{}
		for _, c := range arms {
			for account := range o.of(c, t).Attempts {
				accounts[account] = true
			}
			for kind := range o.of(c, t).Requests {
				kinds[kind] = true
			}
		}
		for _, account := range slices.Sorted(maps.Keys(accounts)) {
			row(t, fmt.Sprint(owners[account]), "attempts of "+account, false, func(o outcome) string { return fmt.Sprint(o.Attempts[account]) })
		}
		row(t, "", "other requests", false, func(o outcome) string { return fmt.Sprint(total(o.Requests)) })
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			row(t, "", "- "+kind, true, func(o outcome) string { return fmt.Sprint(o.Requests[kind]) })
		}
		row(t, "", "events", false, func(o outcome) string { return fmt.Sprint(o.Events) })
		if t.happens != nil {
			row(t, "", "time", false, func(o outcome) string { return fmt.Sprintf("%.1f s", o.Took.Seconds()) })
		}
		if t.reaction != "" {
			row(t, "", "reactions, 25, 50 and 90 %", false, func(o outcome) string {
				return fmt.Sprintf("%d, %d, %d ms", o.late(0.25).Milliseconds(), o.late(0.5).Milliseconds(), o.late(0.9).Milliseconds())
			})
		}
	}
	_ = w.Flush()
	return out.String()
}
