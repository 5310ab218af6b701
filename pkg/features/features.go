// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package features names the feature gates that this project adds to kube-controller-manager's and
// registers them. Upstream's per-controller gates (StaleControllerConsistencyDaemonSet and the like)
// stay as they are and remain the finer switch.
package features

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
)

const (
	// MonitorInformerStaleness measures how old every informer's cache is, with 2 requests a second or
	// fewer for all of them. Off: it sends none; StaleControllerConsistency still proves caches before disruptive actions.
	//
	// kep: https://kep.k8s.io/5647
	// beta: v1.37
	MonitorInformerStaleness featuregate.Feature = "MonitorInformerStaleness"

	// StaleControllerConsistency keeps controllers from disruptive or non-repeatable actions on a
	// cache that may be older than what the action depends on. Off: exactly upstream's behaviour,
	// with upstream's own gates in force.
	//
	// kep: https://kep.k8s.io/5647
	// beta: v1.37
	StaleControllerConsistency featuregate.Feature = "StaleControllerConsistency"
)

// dependencies says what a gate cannot do without. With AtomicFIFO off an informer's store says
// nothing of bookmarks and relists, so its resource version cannot be trusted.
var dependencies = map[featuregate.Feature][]featuregate.Feature{
	MonitorInformerStaleness:   {featuregate.Feature(clientfeatures.AtomicFIFO)},
	StaleControllerConsistency: {featuregate.Feature(clientfeatures.AtomicFIFO)},
}

// Register adds the gates and their dependencies. It must be called once, before the gates are bound
// to flags, and after client-go's gates were added to the same gates.
func Register(gates featuregate.MutableVersionedFeatureGate) error {
	beta := featuregate.VersionedSpecs{{Version: version.MustParse("1.37"), Default: true, PreRelease: featuregate.Beta}}
	err := gates.AddVersioned(map[featuregate.Feature]featuregate.VersionedSpecs{
		MonitorInformerStaleness:   beta,
		StaleControllerConsistency: beta,
	})
	if err != nil {
		return fmt.Errorf("register feature gates: %w", err)
	}
	if err := gates.AddDependencies(clone(dependencies)); err != nil {
		return fmt.Errorf("register feature gate dependencies: %w", err)
	}
	return nil
}

// Explain adds to an error of setting the gates what to change when one of this project's gates was
// left on without what it depends on; any other error comes back as it is. The gates' own error names
// the gates, but no flag.
func Explain(err error) error {
	for gate, needs := range dependencies {
		if err != nil && strings.Contains(err.Error(), string(gate)+" is enabled, but depends on features that are disabled") {
			return fmt.Errorf("invalid --feature-gates: %w: turn on what is missing (--feature-gates=%s=true) or turn off each gate that needs it (--feature-gates=%s=false,...)", err, needs[0], gate)
		}
	}
	return err
}

// clone keeps AddDependencies, which sorts and merges in place, away from the package's own map.
func clone(in map[featuregate.Feature][]featuregate.Feature) map[featuregate.Feature][]featuregate.Feature {
	out := make(map[featuregate.Feature][]featuregate.Feature, len(in))
	for gate, needs := range in {
		out[gate] = slices.Clone(needs)
	}
	return out
}
