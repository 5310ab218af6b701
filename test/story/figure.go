// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"fmt"
	"slices"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane/gates"
)

// Outcome is what a figure says about the kube-controller-manager.
type Outcome int

const (
	// NotJudged is for figures that describe the run.
	NotJudged Outcome = iota
	// Right and Wrong are for figures that have a threshold.
	Right
	Wrong
)

// String is the outcome in a table; a figure that is not judged has none.
func (v Outcome) String() string { return [...]string{"", "ok", "WRONG"}[v] }

// Figure is one measured value.
type Figure struct {
	Name, Value string
	Outcome     Outcome
}

// Result is what one story measured on one arm.
type Result interface {
	// Figures are the same ones in the same order for every arm.
	Figures() []Figure
	// Subject says which kube-controller-manager it was.
	Subject() KCM
}

// KCM is the kube-controller-manager that a result is about, by its own account.
type KCM struct {
	Arm     controlplane.Arm
	Version string
	// GatesOn and GatesOff are its feature gates about staleness.
	GatesOn, GatesOff []string
}

// Subject makes results that embed a KCM say so.
func (k KCM) Subject() KCM { return k }

func describe(ctx context.Context, k *controlplane.KCM) (KCM, error) {
	version, err := k.Version(ctx)
	if err != nil {
		return KCM{}, err
	}
	running, err := gates.Running(ctx, k)
	if err != nil {
		return KCM{}, err
	}
	return KCM{
		Arm: k.Arm(), Version: version,
		GatesOn: gates.Names(running, true), GatesOff: gates.Names(running, false),
	}, nil
}

// IsWrong reports whether any figure of a result is wrong.
func IsWrong(r Result) bool {
	return slices.ContainsFunc(r.Figures(), func(f Figure) bool { return f.Outcome == Wrong })
}

// Story is one fault and what it does to a kube-controller-manager.
type Story struct {
	// ID is its letter, Title what happens in it, Correct what a kube-controller-manager should do.
	ID, Title, Correct string
	// Hurts are the unprotected arms that must go wrong if the story is to mean anything: one of them is
	// enough.
	Hurts []controlplane.Arm
	// Run runs it with a cluster of its own, whose files go to the directory.
	Run func(ctx context.Context, options Options) (Result, error)
	// Settings says what it was run with.
	Settings func(options Options) string
}

// Options are what stories have in common.
type Options struct {
	Arm controlplane.Arm
	// Dir is for the cluster's files. It must not exist or be empty.
	Dir string
	// Nodes is how many nodes die in the story about that.
	Nodes int
	// Progress is told what is going on, which changes a few times in a story, and its details, which change
	// every second; from one goroutine at a time. May be nil.
	Progress func(what, details string)
}

func (o Options) say(what, details string, args ...any) {
	if o.Progress != nil {
		o.Progress(what, fmt.Sprintf(details, args...))
	}
}

// All returns every story.
func All() []Story { return []Story{eviction, nodeDeath, claimLoss} }

// Proves returns an error if the results of a story, by arm, prove nothing: a fault that does not hurt
// the unprotected is none. Results without any arm that should be hurt are not judged.
func (s Story) Proves(results map[controlplane.Arm]Result) error {
	var ran []controlplane.Arm
	for _, arm := range s.Hurts {
		r, ok := results[arm]
		if !ok {
			continue
		}
		if IsWrong(r) {
			return nil
		}
		ran = append(ran, arm)
	}
	if len(ran) > 0 {
		return fmt.Errorf("story %s proves nothing: nothing went wrong in %v, which has no protection", s.ID, ran)
	}
	return nil
}

func ratio(part, whole int) string { return fmt.Sprintf("%d of %d", part, whole) }

// judge is Wrong if the condition holds.
func judge(wrong bool) Outcome {
	if wrong {
		return Wrong
	}
	return Right
}
