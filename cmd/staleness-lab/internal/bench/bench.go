// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/display"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/logs"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/measure"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/report"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/run"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
)

// Plan is what to run, and where to keep it.
type Plan struct {
	Benchmarks []spec.Benchmark
	// Out is the folder of the results, Raw that of scrapes and profiles.
	Out, Raw string
	Budget   time.Duration
	Profile  bool
	// Binary is the kube-controller-manager of P, if it is another than the one that was built.
	Binary string
	// Check makes a missed goal an error.
	Check bool
	// Command is what the user typed.
	Command string
}

// Run runs the benchmarks and writes the results. When it returns every process is gone.
func Run(ctx context.Context, plan Plan, screen display.Screen, out io.Writer) error {
	if err := makeEmpty(plan.Out, plan.Raw); err != nil {
		return err
	}
	ctx, closeLog, err := logs.ToFile(ctx, filepath.Join(plan.Raw, "staleness-lab.log"))
	if err != nil {
		return err
	}
	info := sample.Run{
		Name: filepath.Base(plan.Out), Began: time.Now().UTC().Truncate(time.Second), Command: plan.Command,
		Commit: commit(ctx, plan.Out), Machine: measure.Machine(),
	}
	if info.Benchmarks, err = json.Marshal(plan.Benchmarks); err != nil {
		return err
	}
	b := newBoard()
	drawing, stopDrawing := context.WithCancel(context.WithoutCancel(ctx))
	var drawer sync.WaitGroup
	drawer.Go(func() { b.draw(drawing, screen) })
	outcome, err := run.Run(ctx, run.Options{
		Benchmarks: plan.Benchmarks, Budget: plan.Budget, Raw: plan.Raw, Profile: plan.Profile, Binary: plan.Binary, Progress: b.set,
		Record: func(s sample.Sample) error { return sample.Append(filepath.Join(plan.Out, report.SamplesFile), s) },
	})
	stopDrawing()
	drawer.Wait()
	err = errors.Join(err, closeLog())
	if ctx.Err() != nil {
		return fmt.Errorf("stopped; the samples so far are in %s", plan.Out)
	}
	if err != nil {
		return err
	}
	info.Took, info.Stopped, info.Versions = time.Since(info.Began).Round(time.Second), outcome.Stopped, outcome.Versions
	info.Versions["go"] = runtime.Version()
	if err := report.WriteRun(plan.Out, info); err != nil {
		return err
	}
	if plan.Profile {
		if err := report.CompareProfiles(plan.Out, plan.Raw); err != nil {
			return err
		}
	}
	if err := Report(plan.Out, out); err != nil {
		return err
	}
	if plan.Check {
		return report.Check(plan.Out)
	}
	return nil
}

// Report writes everything that is made from a folder's samples, and shows the table.
func Report(dir string, out io.Writer) error {
	table, err := report.Write(dir)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%s\nThe results are in %s\n", table, dir)
	return err
}

// Compare shows how far two runs are apart, and returns an error if that is farther than two runs of one build may be.
func Compare(first, second string, out io.Writer) error {
	one, err := report.Read(first)
	if err != nil {
		return err
	}
	other, err := report.Read(second)
	if err != nil {
		return err
	}
	distances, err := report.Compare(one, other)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(out, report.CompareTable(distances)); err != nil {
		return err
	}
	apart := 0
	for _, d := range distances {
		if !d.Agrees() {
			apart++
		}
	}
	if apart > 0 {
		return fmt.Errorf("%d of %d figures are farther apart than two runs differ at most", apart, len(distances))
	}
	return nil
}

// makeEmpty makes folders. The first must be empty: samples of two runs do not mix.
func makeEmpty(out, raw string) error {
	entries, err := os.ReadDir(out)
	if err == nil && len(entries) > 0 {
		return fmt.Errorf("--out: %s is not empty", out)
	}
	for _, dir := range []string{out, raw} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// commit is that of the checkout around the working directory, with "-dirty" if a file was changed but those of the folder out, whose
// kept results make room for new ones; empty if there is no checkout.
func commit(ctx context.Context, out string) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	name := strings.TrimSpace(string(head))
	args := []string{"status", "--porcelain", "--untracked-files=no", "--", ":/"}
	if filepath.IsLocal(out) {
		args = append(args, ":(exclude)"+out)
	}
	if changed, err := exec.CommandContext(ctx, "git", args...).Output(); err != nil || len(changed) > 0 {
		name += "-dirty"
	}
	return name
}
