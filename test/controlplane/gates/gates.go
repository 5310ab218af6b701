// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gates asks kube-controller-managers about their feature gates, so that what is shown is what
// runs and not what was asked for.
package gates

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Gate is a feature gate of a running kube-controller-manager.
type Gate struct {
	Name string
	On   bool
}

// Names returns the names of the gates that are on, or of those that are off.
func Names(gates []Gate, on bool) []string {
	var names []string
	for _, g := range gates {
		if g.On == on {
			names = append(names, g.Name)
		}
	}
	return names
}

// stalenessGates are the gates that this project is about, upstream's and ours.
var stalenessGates = regexp.MustCompile(`^(StaleControllerConsistency\w*|MonitorInformerStaleness|NodeControllerLeaseCircuitBreaker)$`)

// featureEnabled matches one series of the metric by which a component tells its gates.
var featureEnabled = regexp.MustCompile(`^kubernetes_feature_enabled\{name="([^"]+)",.*\} ([01])$`)

// Running asks a running kube-controller-manager for its gates about staleness, and for the named ones.
func Running(ctx context.Context, kcm *controlplane.KCM, also ...string) ([]Gate, error) {
	metrics, err := kcm.Get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("asking %s for its gates: %w", kcm.Name(), err)
	}
	gates := parse(metrics, also)
	if len(gates) == 0 {
		return nil, fmt.Errorf("asking %s for its gates: its metrics name none", kcm.Name())
	}
	return gates, nil
}

func parse(metrics []byte, also []string) []Gate {
	var gates []Gate
	for lines := bufio.NewScanner(bytes.NewReader(metrics)); lines.Scan(); {
		m := featureEnabled.FindStringSubmatch(lines.Text())
		if m != nil && (stalenessGates.MatchString(m[1]) || slices.Contains(also, m[1])) {
			gates = append(gates, Gate{Name: m[1], On: m[2] == "1"})
		}
	}
	slices.SortFunc(gates, func(a, b Gate) int { return strings.Compare(a.Name, b.Name) })
	return gates
}

// Check asks the binary of an arm whether it knows the gates and can run with them, which costs
// less than to find it out from a cluster that does not start.
func Check(ctx context.Context, arm controlplane.Arm, gates map[string]bool) error {
	if len(gates) == 0 {
		return nil
	}
	binDir, err := controlplane.FindBinDir()
	if err != nil {
		return err
	}
	merged := arm.FeatureGates()
	maps.Copy(merged, gates)
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		pairs = append(pairs, name+"="+strconv.FormatBool(merged[name]))
	}
	binary := arm.Binary(binDir)
	out, err := exec.CommandContext(ctx, binary, "--version", "--feature-gates="+strings.Join(pairs, ",")).CombinedOutput()
	if err == nil {
		return nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Exited() {
		return fmt.Errorf("asking %s about --feature-gates: %w", binary, err)
	}
	return fmt.Errorf("%s refuses these --feature-gates: %s", filepath.Base(binary), reason(out))
}

// loggedError finds the error in a component's last log line, quoted as klog quotes it.
var loggedError = regexp.MustCompile(`err=("(?:[^"\\]|\\.)*")`)

func reason(out []byte) string {
	if m := loggedError.FindSubmatch(out); m != nil {
		var text string
		if json.Unmarshal(m[1], &text) == nil {
			return text
		}
	}
	return strings.Join(strings.Fields(string(out)), " ")
}
