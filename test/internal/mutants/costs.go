// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

import "slices"

// Costs returns mutants that cost more than they have to. The benchmarks of CI have to find each; none of them changes what
// controllers do.
func Costs() []Mutant { return slices.Clone(costs) }

const answered = "	resp.Body = read\n	if err := w.record("

var costs = []Mutant{
	{
		Name: "cost-reads", Protection: "a write is not followed by a read", File: "pkg/transport/record.go",
		Old: answered,
		New: `	again := req.Clone(req.Context())
	again.Method, again.Body, again.ContentLength = http.MethodGet, nil, 0
	if read, err := r.next.RoundTrip(again); err == nil {
		_ = read.Body.Close()
	}
` + answered,
	},
	{
		Name: "cost-allocations", Protection: "a recorded write takes few allocations", File: store,
		Old: recorded, New: "var last *int\n\n" + recorded + "	for range 5000 {\n		last = new(int)\n	}\n",
	},
}
