// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

// Evidence is what a verification was judged by last.
type Evidence string

// What a verification may be judged by.
const (
	ByProof Evidence = "Proof"
	ByList  Evidence = "List"
	ByGet   Evidence = "Get"
)

// Verdict is the outcome of a verification.
type Verdict string

// The outcomes of a verification. Refuted means that the action was rightly not taken, Inconclusive
// that it was put off.
const (
	Confirmed    Verdict = "Confirmed"
	Refuted      Verdict = "Refuted"
	Inconclusive Verdict = "Inconclusive"
)

// InitVerifications makes the series of a controller's verifications exist at zero.
func InitVerifications(controller string, resources ...schema.GroupResource) {
	for _, r := range resources {
		for _, by := range []Evidence{ByProof, ByList, ByGet} {
			for _, verdict := range []Verdict{Confirmed, Refuted, Inconclusive} {
				metrics.Verifications(controller, r, string(by), string(verdict), 0)
			}
		}
	}
}

// Verified counts the verification of what a disruptive action depends on.
func Verified(controller string, r schema.GroupResource, by Evidence, verdict Verdict) {
	metrics.Verifications(controller, r, string(by), string(verdict), 1)
}

// PutOff is a disruptive action that is put off because it cannot be verified whether the server's state calls for it.
type PutOff struct {
	// Object is the pod, as "namespace/name", or says what else waits.
	Object string
	// Resource of the cache that is not known to be fresh.
	Resource schema.GroupResource
	// For is what has to happen, Why the reason that it has not.
	For, Why string
	Since    time.Time
}
