// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Sample is what one turn of one arm measured.
type Sample struct {
	Benchmark string           `json:"benchmark"`
	Arm       controlplane.Arm `json:"arm"`
	// Round is the number of the repetition, from 1; Warmup says that it is none and does not count.
	Round  int       `json:"round"`
	Warmup bool      `json:"warmup,omitempty"`
	Began  time.Time `json:"began"`
	// Seconds is how long was measured, which is longer than the time to the end state.
	Seconds float64 `json:"seconds"`
	// Figures are the values by the figures' names.
	Figures map[string]float64 `json:"figures"`
	// Wrong counts wrong actions by oracle and rule.
	Wrong map[string]int `json:"wrong,omitempty"`
	// KCMCalls are the requests of kube-controller-manager by verb and resource, from the audit log; without those that
	// fill informers and those of leader election, which depend on time.
	KCMCalls map[string]int `json:"kcmCalls"`
	// APICalls are the requests of all clients by verb and resource, from the apiserver's own metrics.
	APICalls map[string]int `json:"apiCalls"`
}

// Turn names the turn in its run: benchmark, arm and round.
func (s Sample) Turn() string { return fmt.Sprintf("%s-%s-%d", s.Benchmark, s.Arm, s.Round) }

// Run is what the samples of one folder have in common.
type Run struct {
	Name    string        `json:"name"`
	Began   time.Time     `json:"began"`
	Took    time.Duration `json:"took"`
	Command string        `json:"command"`
	// Commit is that of the checkout, with "-dirty" if files were changed.
	Commit   string            `json:"commit"`
	Versions map[string]string `json:"versions"`
	Machine  Machine           `json:"machine"`
	// Stopped says why not every repetition was made; empty if all were.
	Stopped string `json:"stopped,omitempty"`
	// Benchmarks are the files as they were run.
	Benchmarks json.RawMessage `json:"benchmarks"`
}

// Machine is what the run ran on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory"`
	Kernel string `json:"kernel"`
	// Load is the load average of a minute before the run began: a busy machine measures itself.
	Load float64 `json:"load"`
}

// Append adds a sample to a file of JSON lines.
func Append(path string, s Sample) error {
	line, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("keeping a sample: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keeping a sample: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("keeping a sample: %w", err)
	}
	return f.Close()
}

// Read reads a file of JSON lines.
func Read(path string) ([]Sample, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading samples: %w", err)
	}
	var out []Sample
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var s Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("reading samples: %s:%d: %w", path, n, err)
		}
		out = append(out, s)
	}
	return out, lines.Err()
}
