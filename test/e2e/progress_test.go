// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
)

// progressVariable names the pipe for what a person wants to see while a run goes on; ginkgo keeps what specs
// print until its processes end. Unset, or with nobody at its other end: the standard output.
const progressVariable = "E2E_PROGRESS"

// say tells the person who waits for the run.
func say(text string) {
	out := os.Stdout
	if path := os.Getenv(progressVariable); path != "" {
		// To open a pipe that nobody reads would block for ever.
		if pipe, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			defer pipe.Close()
			out = pipe
		}
	}
	fmt.Fprintln(out, text)
}

var _ = ginkgo.ReportBeforeSuite(func(report ginkgo.Report) {
	say(fmt.Sprintf("%d specs, %d at a time", report.PreRunStats.SpecsThatWillRun, report.SuiteConfig.ParallelTotal))
})

// decoration is what labels add to a spec's text.
var decoration = regexp.MustCompile(` \[(FeatureGate:[^\]]*|Alpha|Beta)\]`)

// One line for each spec that ends, and the reason of each that fails.
var _ = ginkgo.ReportAfterEach(func(report ginkgo.SpecReport) {
	name := decoration.ReplaceAllString(report.FullText(), "")
	switch {
	case report.State.Is(types.SpecStateSkipped | types.SpecStatePending):
	case report.Failed():
		text := fmt.Sprintf("%s\n%s\n%s", report.FailureMessage(), report.FailureLocation().String(), report.CapturedGinkgoWriterOutput)
		say(fmt.Sprintf("FAILED %6.1fs  %s\n  %s", report.RunTime.Seconds(), name, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")))
	default:
		say(fmt.Sprintf("ok     %6.1fs  %s", report.RunTime.Seconds(), name))
	}
})
