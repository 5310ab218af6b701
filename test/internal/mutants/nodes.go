// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	breaker = "pkg/nodebreaker"
	guards  = "pkg/evictionguard"
)

// nodes are the mutants of node lifecycle and of evictions.
var nodes = []Tested{
	{
		Mutant: Mutant{
			Name: "lost-event", Protection: "a node is read from the server before its pods are evicted, as an event may be lost", File: guards + "/taint.go",
			Old: "check = g.checks.begin(e.Node, g.gate.busy())",
			New: "_ = g.checks.begin",
		},
		Package: guards, Test: "TestLostEvent",
	},
	{
		Mutant: Mutant{
			Name: "each-try", Protection: "each try of an eviction is decided again", File: guards + "/taint.go",
			Old: "case view.old():",
			New: "case view.old() && false:",
		},
		Package: guards, Test: "TestEachTryIsDecidedAgain",
	},
	{
		Mutant: Mutant{
			Name: "gone-node", Protection: "pods of a node that is gone are evicted when their tolerations end", File: guards + "/taintview.go",
			Old: "return v.node != nil && len(noExecute(v.node)) == 0",
			New: "return v.node == nil || len(noExecute(v.node)) == 0",
		},
		Package: guards, Test: "TestPodsOfANodeThatIsGoneAreEvictedOnTime",
	},
	{
		Mutant: Mutant{
			Name: "slow-node", Protection: "a proof of a node's condition may come after who asked for it has gone", File: breaker + "/verify.go",
			Old: "		n.putOff[c] = asOf\n",
			New: "",
		},
		Package: compositionTests, Test: "TestANodeDiesWhileTheServerIsSlow",
	},
	{
		Mutant: Mutant{
			Name: "proof-ahead", Protection: "on a slow server the next proof of a node is made beside the request of an eviction", File: guards + "/taintview.go",
			Old: "	if v.live || time.Since(v.at) <= proofAge {\n",
			New: "	if v.live || time.Since(v.at) >= 0 {\n",
		},
		Package: compositionTests, Test: "TestANodeDiesWhileTheServerIsSlow",
	},
	{
		Mutant: Mutant{
			Name: "proof-took", Protection: "an eviction takes one proof of the nodes, however long that takes, if its other requests take no time", File: guards + "/taintview.go",
			Old: "age := proofAge + v.took",
			New: "age := proofAge",
		},
		Package: compositionTests, Test: "TestAnEvictionWhileNodesAreReadSlowly",
	},
	{
		Mutant: Mutant{
			Name: "view-lag", Protection: "an eviction rests on no older proof of the nodes because the cache had to catch up", File: guards + "/taintview.go",
			Old: "took := proof.Took(asked)",
			New: "took := time.Since(asked)",
		},
		Package: guards, Test: "TestViewsAgeByWhatTheServerTook/the_cache_had_to_catch_up",
	},
	{
		Mutant: Mutant{
			Name: "failed-last", Protection: "evictions that have failed before begin behind all others", File: guards + "/taint.go",
			Old: "g.gate.enter(ctx, state.failed)",
			New: "g.gate.enter(ctx, false)",
		},
		Package: guards, Test: "TestFailedEvictionsDelayNoOthers",
	},
	{
		Mutant: Mutant{
			Name: "refused-rarely", Protection: "evictions that the server refuses are tried more and more rarely", File: guards + "/taint.go",
			Old: "refused := cause == waitFailed && isRefusal(why)",
			New: "refused := false",
		},
		Package: guards, Test: "TestFailedEvictionsDelayNoOthers",
	},
	{
		Mutant: Mutant{
			Name: "re-taint", Protection: "a taint that went and came back is another taint", File: guards + "/taintview.go",
			Old: "return apiequality.Semantic.DeepEqual(t, taint) }",
			New: "return t.MatchTaint(&taint) }",
		},
		Package: guards, Test: "TestSameTaints",
	},
	{
		Mutant: Mutant{
			Name: "relisted-taint", Protection: "a taint of another time that a list shows is another taint", File: guards + "/taint.go",
			Old: "seen := g.relists.after(e.Node, e.Start)",
			New: "seen := e.Start",
		},
		Package: guards, Test: "TestTaintsShownByAList/taint_of_another_time,_by_a_list,guarded=true",
	},
	{
		Mutant: Mutant{
			Name: "node-list", Protection: "many live reads of nodes become one list", File: guards + "/nodelist.go",
			Old: "if l.Wanted() < fewReads || !l.mayList() {",
			New: "if l.Wanted() < fewReads || !l.mayList() || true {",
		},
		Package: guards, Test: "TestManyNodesAreListed",
	},
	{
		Mutant: Mutant{
			Name: "dead-age", Protection: "a node that was confirmed dead is proven again after 2 s", File: breaker + "/verify.go",
			Old: "if time.Since(dead) <= nodeAge && seen",
			New: "if !dead.IsZero() && seen",
		},
		Package: breaker, Test: "TestConfirmedDeadGrowsOld",
	},
	{
		Mutant: Mutant{
			Name: "vain-proofs", Protection: "a proof of the nodes that fails is not asked for again for each node", File: breaker + "/verify.go",
			Old: "vain := time.Since(n.unproven) < proofRetry",
			New: "vain := time.Since(n.unproven) < 0",
		},
		Package: breaker, Test: "TestNodesWithoutAProofAreAskedAboutOnce",
	},
	{
		Mutant: Mutant{
			Name: "repair", Protection: "nodes that post their status are repaired while the leases cannot be read", File: breaker + "/nodes.go",
			Old: "	n.noteUnverified(ctx, err)\n	return true\n}",
			New: "	n.noteUnverified(ctx, err)\n	return err == nil\n}",
		},
		Package: "pkg/consistencystore", Test: "TestNodesThatPostAreNotHeld",
	},
	{
		Mutant: Mutant{
			Name: "judged-again", Protection: "a device's taint that came while another was judged is judged in turn", File: controllers + "devicetainteviction/guard.go",
			Old: "case !now.equal(&eviction):",
			New: "case !now.equal(&eviction) && false:",
		},
		Package: guards, Test: "TestDeviceTaintReplacedWhileJudged/guarded=true",
	},
	{
		Mutant: Mutant{
			Name: "own-lane", Protection: "lists of leases do not wait for the budget behind all reads of nodes", File: "pkg/livereads/budget.go",
			Old: "l := lane{controller, resource}",
			New: "l := lane{controller: controller}",
		},
		Package: breaker, Test: "TestListsBesideReadsOfNodes",
	},
	{
		Mutant: Mutant{
			Name: "own-timeout", Protection: "the wait for the budget takes nothing from the time of a live read", File: "pkg/livereads/budget.go",
			Old: "within := func(context.Context) error {\n		ctx, cancel := context.WithTimeout(ctx, timeout)",
			New: "within := func(ctx context.Context) error {\n		ctx, cancel := context.WithTimeout(ctx, timeout)",
		},
		Package: "pkg/livereads", Test: "TestALiveReadHasItsTimeForItself",
	},
	{
		Mutant: Mutant{
			Name: "free-token", Protection: "a live read takes a token that is there, even if the wait for it is over", File: "pkg/livereads/budget.go",
			Old: "begins := ctx.Err() == nil && b.free()",
			New: "begins := false",
		},
		Package: "pkg/livereads", Test: "TestATokenThatIsThereNeedsNoWait",
	},
	{
		Mutant: Mutant{
			Name: "large-pages", Protection: "the leases of 15,000 nodes are listed in three pages", File: breaker + "/leases.go",
			Old: "	pageSize = 5000\n",
			New: "	pageSize = 500\n",
		},
		Package: breaker, Test: "TestManyNodesWithHeldLeases/15000_nodes,_answers_after_1s",
	},
	{
		Mutant: Mutant{
			Name: "list-interval", Protection: "lists of leases are as far apart as they have pages", File: breaker + "/leases.go",
			Old: "min(time.Duration(max(pages, 1))*pageInterval, grace/2)",
			New: "min(pageInterval, grace/2)",
		},
		Package: breaker, Test: "TestManyNodesWithHeldLeases/15000_nodes,_answers_after_1s",
	},
	{
		Mutant: Mutant{
			Name: "list-due", Protection: "while their cache is stale the leases are not listed again in each pass", File: breaker + "/nodes.go",
			Old: "time.Since(list.at) < n.suspectAfter()/2:",
			New: "time.Since(list.at) < 0:",
		},
		Package: breaker, Test: "TestNodesUnderFaults/leases_held",
	},
	{
		Mutant: Mutant{
			Name: "list-expires", Protection: "a pass that may have to judge a node dead begins with a list of the leases", File: breaker + "/nodes.go",
			Old: "!caughtUp && !pass.due &&",
			New: "!caughtUp &&",
		},
		Package: breaker, Test: "TestManyNodesWithHeldLeases/15000_nodes,_answers_after_1s",
	},
	{
		Mutant: Mutant{
			Name: "list-unverified", Protection: "a pass begins with a list of the leases if the last one could not verify a node", File: breaker + "/nodes.go",
			Old: "due: last.inconclusive > 0 || last",
			New: "due: last",
		},
		Package: breaker, Test: "TestWhatWasNotVerifiedIsInTheNextPass",
	},
	{
		Mutant: Mutant{
			Name: "list-old", Protection: "a cache of leases that lags does not count as good because it has an old list", File: breaker + "/nodes.go",
			Old: "case caughtUp && !e.at.Before(pass.last):",
			New: "case caughtUp:",
		},
		Package: breaker, Test: "TestBreakerStaysOpenWhateverTheLag/6s",
	},
	{
		Mutant: Mutant{
			Name: "list-dropped", Protection: "the list of leases is dropped once the breaker is closed", File: breaker + "/nodes.go",
			Old: "		n.leases.list = nil\n",
			New: "		_ = n.leases.list\n",
		},
		Package: breaker, Test: "TestManyNodesWithHeldLeases/1000_nodes,_answers_after_0s",
	},
	{
		Mutant: Mutant{
			Name: "off-pass", Protection: "a pass waits 2 s at most for a list of leases when it begins", File: breaker + "/nodes.go",
			Old: "timer := time.NewTimer(refreshWait)",
			New: "timer := time.NewTimer(time.Hour)",
		},
		Package: breaker, Test: "TestAPassDoesNotWaitForASlowList/when_it_begins",
	},
	{
		Mutant: Mutant{
			Name: "off-workers", Protection: "the workers of a pass wait 2 s at most for lists of leases", File: breaker + "/nodes.go",
			Old: "time.AfterFunc(refreshWait, func() { close(enough) })",
			New: "time.AfterFunc(time.Hour, func() { close(enough) })",
		},
		Package: breaker, Test: "TestAPassDoesNotWaitForASlowList/by_its_workers",
	},
}
