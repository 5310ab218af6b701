// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// RuleSlower is oracle F: what a fault does not touch became slower by it.
const RuleSlower = "slower because of another resource"

// serviceAccountController makes an account in each new namespace.
const serviceAccountController = "service-account-controller"

// Bystanders returns how long it took kube-controller-manager to give each namespace that was made the ServiceAccount that it must
// have: from the answer to the one until the request for the other arrived. Nothing but namespaces and ServiceAccounts is read for
// that. Namespaces made in one of the times are left out, or before and served after it began.
func Bystanders(writes []controlplane.AuditEvent, but ...Period) (out []time.Duration) {
	made := map[string]time.Time{}
	for i := range writes {
		e := &writes[i]
		switch {
		case !succeeded(e) || e.Verb != "create":
		case e.ObjectRef.Resource == "namespaces":
			made[e.ObjectRef.Name] = e.StageTimestamp
		case e.ObjectRef.Resource == "serviceaccounts" && e.ServiceAccount() == serviceAccountController:
			from, known := made[e.ObjectRef.Namespace]
			delete(made, e.ObjectRef.Namespace)
			to := e.RequestReceivedTimestamp
			if known && !slices.ContainsFunc(but, func(p Period) bool { return from.Before(p.To) && p.From.Before(to) }) {
				out = append(out, max(0, to.Sub(from)))
			}
		}
	}
	slices.Sort(out)
	return out
}

// Percentile returns the smallest of sorted times that so many percent are not longer than.
func Percentile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[(len(times)*percent+99)/100-1]
}
