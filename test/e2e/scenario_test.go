// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/mutants"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

// Labels of the scenarios besides scenario:N. A scenario has one of the two.
const (
	ordinary = "ordinary" // in the run of every change
	long     = "long"     // too long for it
)

// armVariable chooses the arms: one of rig's arms, then every scenario runs on it alone and must hold there,
// so that ARM=U1 reports what stock upstream fails; or ALL, to fill the table, then only P must hold; or
// PROTECTION, then P must hold, and go wrong as soon as one protection is switched off, by gate or by mutant.
// Unset: P must hold, and the arms that a scenario says are hurt must go wrong in the same run. Of an incident U1 is reported, too.
const (
	armVariable = "ARM"
	protection  = "PROTECTION"
)

// mutantsVariable names the folder of the binaries that internal/mutants/build made.
const mutantsVariable = "E2E_MUTANTS"

// scenario is one row of docs/scenarios.md.
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
	// mutants are the protections without any of which P goes wrong.
	mutants []without
	// allows are rules that every arm may break; the scenario's comment says why.
	allows  []string
	options rig.Options
	// idle says that no DaemonSet has a reason to wait for its caches.
	idle bool
	// alone says that no other spec may run meanwhile, timed that none may while an arm has to hold: what is
	// judged are times of milliseconds.
	alone   bool
	timed   bool
	timeout time.Duration
	// gaps are the rows of docs/track-record.md that the scenario shows on U1.
	gaps []int
	// incidents are the reports of docs/incidents.md that the scenario shows again.
	incidents []string
	run       func(ctx context.Context, r *run)
}

// without is a protection, by the name of the mutant that takes it away (see test/internal/mutants), and the rule by which
// P must go wrong then. That it goes wrong by another one shows something, but not that this protection is needed.
type without struct{ mutant, rule string }

// describe makes one spec for each arm.
func describe(s scenario) bool {
	index(s)
	if s.gate == nil {
		s.gate = gates.StaleControllerConsistency
	}
	company := []any{}
	if s.alone {
		company = append(company, ginkgo.Serial)
	}
	return ginkgo.Describe(fmt.Sprintf("Scenario %d: %s", s.number, s.title), s.gate(), company,
		ginkgo.Label(s.labels()...), priority(s.timeout), func() {
			for _, v := range s.variants() {
				company := []any{}
				if s.timed && s.expectation(v) == holds {
					company = append(company, ginkgo.Serial)
				}
				ginkgo.It(fmt.Sprintf("arm %s %s", v, s.expectation(v)), func(ctx context.Context) {
					s.runOn(ctx, v)
				}, ginkgo.Label(v.labels()...), ginkgo.Label(s.runOf(v)), ginkgo.SpecTimeout(slowMachine*s.timeout), company)
			}
		})
}

func (s scenario) labels() []string {
	labels := []string{fmt.Sprintf("scenario:%d", s.number)}
	for _, gap := range s.gaps {
		labels = append(labels, fmt.Sprintf("gap:%d", gap))
	}
	for _, report := range s.incidents {
		labels = append(labels, "incident:"+report)
	}
	return labels
}

// runOf is the label of the run that a variant is in: what is only reported costs the run of every change nothing.
func (s scenario) runOf(v variant) string {
	if os.Getenv(armVariable) == "" && s.expectation(v) == reported {
		return long
	}
	return s.label
}

// priority has what may take longest begin first, so that no process is left with it at the end.
func priority(timeout time.Duration) ginkgo.SpecPriority {
	return ginkgo.SpecPriority(timeout.Seconds())
}

// variant is an arm, or arm P without one protection.
type variant struct {
	arm rig.Arm
	without
}

func (v variant) String() string {
	if v.mutant != "" {
		return fmt.Sprintf("%s without %s", v.arm, v.mutant)
	}
	return string(v.arm)
}

// labels are arm:X and mutant:Y, and protection if that is what runs.
func (v variant) labels() []string {
	labels := []string{"arm:" + string(v.arm)}
	if v.mutant != "" {
		labels = append(labels, "mutant:"+v.mutant)
	}
	if os.Getenv(armVariable) == protection {
		labels = append(labels, "protection")
	}
	return labels
}

func (s scenario) variants() []variant {
	switch chosen := os.Getenv(armVariable); chosen {
	case "":
		var out []variant
		if s.hurts != "" {
			out = append(out, variant{arm: s.hurts})
		}
		out = append(out, variant{arm: rig.P})
		if len(s.incidents) > 0 && s.hurts != rig.U1 {
			out = append(out, variant{arm: rig.U1}) // what stock does today
		}
		return out
	case "ALL":
		return []variant{{arm: rig.U0}, {arm: rig.U1}, {arm: rig.Off}, {arm: rig.P}}
	case protection:
		return s.unprotected()
	default:
		arm, err := rig.ParseArm(chosen)
		if err != nil {
			panic(err)
		}
		return []variant{{arm: arm}}
	}
}

// unprotected are P and all that it must not hold without. A long scenario that has none is another form of one that has.
func (s scenario) unprotected() []variant {
	if len(s.mutants) == 0 && s.label == ordinary {
		panic(fmt.Sprintf("scenario %d, %s: nothing shows that it can fail", s.number, s.title))
	}
	if len(s.mutants) == 0 && s.hurts == "" {
		return nil
	}
	out := []variant{{arm: rig.P}}
	switch s.hurts {
	case rig.U0:
		out = append(out, variant{arm: rig.Off0})
	case rig.U1:
		out = append(out, variant{arm: rig.Off})
	}
	for _, w := range s.mutants {
		out = append(out, variant{rig.P, w})
	}
	return out
}

// ifOrdinary is for scenarios of both labels: in the long one the same protection needs no second proof.
func ifOrdinary(label string, mutants ...without) []without {
	if label != ordinary {
		return nil
	}
	return mutants
}

// expectation is what an arm must do: hold, go wrong, or only be reported.
func (s scenario) expectation(v variant) string {
	chosen := os.Getenv(armVariable)
	switch {
	case v.mutant != "", chosen == protection && v.arm != rig.P:
		return goesWrong
	case v.arm == rig.P, chosen == string(v.arm):
		return holds
	case v.arm == s.hurts:
		return goesWrong
	}
	return reported
}

const (
	holds     = "holds"
	goesWrong = "goes wrong"
	reported  = "is reported"
)

func (s scenario) runOn(ctx context.Context, v variant) {
	started := time.Now()
	options := s.options
	options.Arm, options.Rest = v.arm, true
	if v.mutant != "" {
		_, err := mutants.Find(v.mutant)
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		options.Binary = filepath.Join(os.Getenv(mutantsVariable), v.mutant)
	}
	fixture, err := rig.Start(ctx, options)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	r := &run{Rig: fixture, idle: s.idle}
	ginkgo.DeferCleanup(func(ctx context.Context) {
		r.countProofs()
		s.report(v, r, time.Since(started), ginkgo.CurrentSpecReport().Failed())
		if ginkgo.CurrentSpecReport().Failed() || os.Getenv("KEEP") != "" {
			dir, err := r.Keep()
			ginkgo.GinkgoWriter.Println("evidence is kept in", dir, err)
		}
		gomega.Expect(r.Stop(ctx)).To(gomega.Succeed())
	})
	if v.mutant == "" {
		s.run(ctx, r)
		r.judge(ctx)
	} else {
		s.runWithout(ctx, v, r)
	}
	r.violations = slices.DeleteFunc(r.violations, func(v oracle.Violation) bool { return slices.Contains(s.allows, v.Rule) })

	told := map[string]int{}
	for _, v := range r.violations {
		if told[v.Rule]++; told[v.Rule] <= 5 {
			ginkgo.GinkgoWriter.Println(v)
		}
	}
	if v.mutant == "" { // A mutant may have taken away what has an owner wait.
		r.unproven = append(r.unproven, r.unwaited...)
	}
	gomega.Expect(r.unproven).To(gomega.BeEmpty(), "the fault was injected and did enough (V)")
	switch s.expectation(v) {
	case holds:
		gomega.Expect(oracle.Count(r.violations)).To(gomega.BeEmpty(), "violations; first: %s", first(r.violations))
	case goesWrong:
		gomega.Expect(s.caughtBy(v, r.violations)).NotTo(gomega.BeEmpty(), "%s must go wrong by one of %q (V), and does by %v", v, s.rulesFor(v), oracle.Count(r.violations))
	}
}

// runWithout runs P without a protection. Then even what every arm must get through may not come, but the process must
// live, and the fault have been there.
func (s scenario) runWithout(ctx context.Context, v variant, r *run) {
	missed := gomega.InterceptGomegaFailure(func() { s.run(ctx, r) })
	if missed != nil {
		r.violate(oracle.Violation{Oracle: "L", Rule: ruleStep, Object: v.mutant, Time: time.Now(), Detail: missed.Error()})
	}
	gomega.Expect(r.SameKCM(ctx)).To(gomega.Succeed(), "without %s", v.mutant)
	touched := func(f *faultproxy.Fault) bool { return f.Stats().Touched() > 0 }
	if missed != nil && !slices.ContainsFunc(r.faults, touched) {
		r.unproven = append(r.unproven, "no fault was injected before "+missed.Error())
	}
	r.judge(ctx)
}

// rulesFor are the rules by one of which a variant must go wrong.
func (s scenario) rulesFor(v variant) []string {
	if v.mutant != "" {
		return []string{v.rule}
	}
	return s.rules
}

// caughtBy are those of the violations by which the variant was to go wrong, as "oracle rule".
func (s scenario) caughtBy(v variant, violations []oracle.Violation) []string {
	found := slices.DeleteFunc(slices.Clone(violations), func(violation oracle.Violation) bool { return !slices.Contains(s.rulesFor(v), violation.Rule) })
	return slices.Sorted(maps.Keys(oracle.Count(found)))
}

func first(violations []oracle.Violation) string {
	if len(violations) == 0 {
		return "none"
	}
	return violations[0].String()
}
