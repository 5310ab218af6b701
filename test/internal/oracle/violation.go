// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Rules of S1 and S2.
const (
	RuleSurplus     = "surplus pod"
	RuleUnjustified = "unjustified delete"
	// RuleUnasked is broken by a pod that was deleted though the audit log has no request for it.
	RuleUnasked = "pod deleted without a request"
	// RuleTooLate is broken by a run whose truth was so late that what it allows for that excuses too much.
	RuleTooLate = "truth too late to judge"
)

// Violation is one proven breach of an oracle.
type Violation struct {
	// Oracle is S1, S2, S3 or L; Rule says which part of it, in a word or two.
	Oracle, Rule string
	// Object is namespace/name of what the breach is about.
	Object string
	// RV is where it happened; 0 if only the time is known.
	RV   uint64
	Time time.Time
	// Detail has the numbers.
	Detail string
}

// String says it in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s %s: %s at %s (rv %d): %s", v.Oracle, v.Rule, v.Object, v.Time.Format("15:04:05.000"), v.RV, v.Detail)
}

// Count counts violations by "oracle rule", such as "S3 status behind own pods".
func Count(violations []Violation) map[string]int {
	out := map[string]int{}
	for _, v := range violations {
		out[v.Oracle+" "+v.Rule]++
	}
	return out
}

// Of returns those of one oracle.
func Of(violations []Violation, oracle string) []Violation {
	return slices.DeleteFunc(slices.Clone(violations), func(v Violation) bool { return v.Oracle != oracle })
}

func sorted(violations []Violation) []Violation {
	slices.SortStableFunc(violations, func(a, b Violation) int { return cmp.Or(cmp.Compare(a.RV, b.RV), a.Time.Compare(b.Time)) })
	return violations
}
