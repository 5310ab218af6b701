// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
)

// Labels of the scenarios besides scenario:N. A scenario has one of the two.
const (
	ordinary = "ordinary" // in the run of every change
	long     = "long"     // too long for it
)

// armVariable chooses the arms: one of rig's arms, then every scenario runs on it alone and must hold there,
// so that ARM=U1 reports what stock upstream fails; or ALL, to fill the table, then only P must hold. Unset:
// P must hold, and the arms that a scenario says are hurt must go wrong in the same run.
const armVariable = "ARM"

// scenario is one row of SCENARIOS.
type scenario struct {
	number int
	title  string
	label  string
	// gate labels the scenario by the feature gate that it is about; nil means StaleControllerConsistency.
	gate func() any
	// hurts names the unprotected arm that must go wrong (V), by at least one of these rules. A scenario in
	// which stock is in truth not hurt leaves it empty and says so in its comment.
	hurts rig.Arm
	rules []string
	// allows are rules that every arm may break; the scenario's comment says why.
	allows  []string
	options rig.Options
	// idle says that no DaemonSet has a reason to wait for its caches.
	idle bool
	// alone says that no other spec may run meanwhile.
	alone   bool
	timeout time.Duration
	run     func(ctx context.Context, r *run)
}

// describe makes one spec for each arm.
func describe(s scenario) bool {
	if s.gate == nil {
		s.gate = gates.StaleControllerConsistency
	}
	company := []any{}
	if s.alone {
		company = append(company, ginkgo.Serial)
	}
	return ginkgo.Describe(fmt.Sprintf("Scenario %d: %s", s.number, s.title), s.gate(), company,
		ginkgo.Label(fmt.Sprintf("scenario:%d", s.number), s.label), priority(s.timeout), func() {
			for _, arm := range s.arms() {
				ginkgo.It(fmt.Sprintf("arm %s %s", arm, s.expectation(arm)), func(ctx context.Context) {
					s.runOn(ctx, arm)
				}, ginkgo.Label("arm:"+string(arm)), ginkgo.SpecTimeout(s.timeout))
			}
		})
}

// priority has what may take longest begin first, so that no process is left with it at the end.
func priority(timeout time.Duration) ginkgo.SpecPriority {
	return ginkgo.SpecPriority(timeout.Seconds())
}

func (s scenario) arms() []rig.Arm {
	switch chosen := os.Getenv(armVariable); chosen {
	case "":
		if s.hurts == "" {
			return []rig.Arm{rig.P}
		}
		return []rig.Arm{s.hurts, rig.P}
	case "ALL":
		return []rig.Arm{rig.U0, rig.U1, rig.Off, rig.P}
	default:
		arm, err := rig.ParseArm(chosen)
		if err != nil {
			panic(err)
		}
		return []rig.Arm{arm}
	}
}

// expectation is what an arm must do: hold, go wrong, or only be reported.
func (s scenario) expectation(arm rig.Arm) string {
	chosen := os.Getenv(armVariable)
	switch {
	case arm == rig.P, chosen == string(arm):
		return holds
	case arm == s.hurts:
		return goesWrong
	}
	return reported
}

const (
	holds     = "holds"
	goesWrong = "goes wrong"
	reported  = "is reported"
)

func (s scenario) runOn(ctx context.Context, arm rig.Arm) {
	started := time.Now()
	options := s.options
	options.Arm = arm
	fixture, err := rig.Start(ctx, options)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r := &run{Rig: fixture, idle: s.idle}
	ginkgo.DeferCleanup(func(ctx context.Context) {
		s.report(arm, r, time.Since(started), ginkgo.CurrentSpecReport().Failed())
		if ginkgo.CurrentSpecReport().Failed() || os.Getenv("KEEP") != "" {
			dir, err := r.Keep()
			ginkgo.GinkgoWriter.Println("evidence is kept in", dir, err)
		}
		gomega.Expect(r.Stop(ctx)).To(gomega.Succeed())
	})
	s.run(ctx, r)
	r.judge(ctx)
	r.violations = slices.DeleteFunc(r.violations, func(v oracle.Violation) bool { return slices.Contains(s.allows, v.Rule) })

	told := map[string]int{}
	for _, v := range r.violations {
		if told[v.Rule]++; told[v.Rule] <= 5 {
			ginkgo.GinkgoWriter.Println(v)
		}
	}
	gomega.Expect(r.unproven).To(gomega.BeEmpty(), "the fault was injected and did enough (V)")
	switch s.expectation(arm) {
	case holds:
		gomega.Expect(oracle.Count(r.violations)).To(gomega.BeEmpty(), "violations; first: %s", first(r.violations))
	case goesWrong:
		gomega.Expect(oracle.Count(r.violations)).To(gomega.Satisfy(func(count map[string]int) bool {
			return slices.ContainsFunc(s.rules, func(rule string) bool {
				for name := range count {
					if strings.HasSuffix(name, rule) {
						return true
					}
				}
				return false
			})
		}), "arm %s must go wrong by one of %q (V)", arm, s.rules)
	}
}

func first(violations []oracle.Violation) string {
	if len(violations) == 0 {
		return "none"
	}
	return violations[0].String()
}
