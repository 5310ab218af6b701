// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

// Composition are the edits that make ours worse than upstream again, in the way of a finding that was mended. The
// random histories of test/composition must find each.
func Composition() []Mutant { return composition }

var composition = []Mutant{
	{
		Name: "backoff", Protection: "an owner that is parked keeps its backoff (A1)", File: "_output/staging/kubernetes/pkg/controller/replicaset/replica_set.go",
		Old: "	if consistencyutil.Parked(err) {\n		return true\n",
		New: "	if consistencyutil.Parked(err) {\n		rsc.queue.Forget(key)\n		return true\n",
	},
	{
		Name: "own-hold", Protection: "a 429 holds back the proofs of its resource alone (A3)", File: "pkg/freshness/admit.go",
		Old: "	if f != nil && f.overload && builtIn(t.r.gvr) {",
		New: "	if f != nil && f.reason == ReasonThrottled {",
	},
	{
		Name: "heartbeat", Protection: "a renewTime that goes back is a heartbeat, too (A4)", File: "pkg/circuitbreaker/heartbeat.go",
		Old: "|| !saved.Spec.RenewTime.Equal(lease.Spec.RenewTime)",
		New: "|| saved.Spec.RenewTime.Before(lease.Spec.RenewTime)",
	},
	{
		Name: "prove-ahead", Protection: "what could not be proven of a view is proven before the next one is taken (B5)", File: store,
		Old: "			s.proveNextAhead(owner.Name, resources)\n",
		New: "			_ = resources\n",
	},
}
