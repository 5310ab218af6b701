// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gates labels specs by this project's feature gates, in the manner of Kubernetes' own e2e
// framework: the label FeatureGate:<name>, which --label-filter understands, and the gate's stage.
package gates

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/kubernetes/pkg/features" // adds client-go's gates, on which ours depend
	"k8s.io/kubernetes/test/e2e/framework"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
)

func init() {
	utilruntime.Must(features.Register(utilfeature.DefaultMutableFeatureGate))
}

// StaleControllerConsistency labels what that gate protects. It is an argument of ginkgo's Describe,
// Context and It.
func StaleControllerConsistency() any {
	return framework.WithFeatureGate(features.StaleControllerConsistency)
}

// MonitorInformerStaleness labels what that gate shows. It is an argument of ginkgo's Describe,
// Context and It.
func MonitorInformerStaleness() any {
	return framework.WithFeatureGate(features.MonitorInformerStaleness)
}
