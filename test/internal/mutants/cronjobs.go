// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

// cronJobs are the protections of CronJob that tests are about.
var cronJobs = []Tested{
	{
		Mutant: Mutant{
			Name: "cronjob-backoff", Protection: "a CronJob that has waited for a proof is tried again no sooner than its backoff has it", File: cronJob + "prove.go",
			Old: "waits && began.Equal(since) {",
			New: "waits && began.Equal(since) || true {",
		},
		Package: compositionTests, Test: "TestCronJobCannotRunForLong/webhook,_slow_proofs",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-went-on", Protection: "a CronJob of which a write has failed is left to its backoff once it went on without a proof", File: "pkg/consistencystore/store.go",
			Old: "if s.brief && s.refusals.wentOn(owner) {",
			New: "if s.brief && s.refusals.wentOn(owner) && false {",
		},
		Package: compositionTests, Test: "TestCronJobOfWhoseJobsNobodyKnows",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-comeback", Protection: "a CronJob of which writes fail is not left to its queue for long where events have doubled its delay", File: "pkg/consistencystore/comeback.go",
			Old: "replicationControllerStore, cronJob:",
			New: "replicationControllerStore:",
		},
		Package: compositionTests, Test: "TestRegressions/cronjob-left-to-its-queue.json",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-looks", Protection: "a CronJob that is looked at often while it waits is synced once at the end of its wait", File: cronJob + "prove.go",
			Old: "		jm.ask(ctx, key, since)\n",
			New: "		jm.ask(ctx, key, since); for range 9 { time.AfterFunc(until.Sub(now), func() { jm.back(key, since) }) }\n",
		},
		Package: compositionTests, Test: "TestCronJobOfWhoseJobsNobodyKnows/CronJobs_cannot_be_proven",
	},
	{Mutant: mustFind("proof-cronjob"), Package: compositionTests, Test: "TestCronJobIsSuspendedUnseen"},
	{
		Mutant: Mutant{
			Name: "cronjob-goes-on", Protection: "a CronJob that can be neither proven nor read runs all the same after a time", File: cronJob + "prove.go",
			Old: "return cronJob, since.Add(min(limit, ",
			New: "return cronJob, since.Add(time.Hour + min(limit, ",
		},
		Package: "pkg/consistencystore", Test: "TestCronJobRunsByWhatTheServerHas/stale,_no_read",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-hang", Protection: "a CronJob runs before its deadline though reads of CronJobs hang", File: cronJob + "prove.go",
			Old: "time.AfterFunc(until.Sub(now), ",
			New: "time.AfterFunc(until.Sub(now)+10*time.Second, ",
		},
		Package: compositionTests, Test: "TestCronJobsRunWhileReadsHang",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-late", Protection: "a CronJob that is looked at late runs before its deadline all the same", File: cronJob + "prove.go",
			Old: "limit -= since.Sub(*due)",
			New: "limit -= 0 * since.Sub(*due)",
		},
		Package: "pkg/consistencystore", Test: "TestCronJobRunsByWhatTheServerHas/no_read,_late",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-synced", Protection: "a CronJob that is synced by a read of the server, and fails, is left to its backoff", File: cronJob + "prove.go",
			Old: "jm.waits.end(key, now, false, false)",
			New: "jm.waits.end(\"\", now, false, false)",
		},
		Package: "pkg/consistencystore", Test: "TestACronJobThatFailsSlowlyIsLeftToItsBackoff",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-once", Protection: "a CronJob goes on so once for a run that is due", File: cronJob + "prove.go",
			Old: "due.After(since) {",
			New: "due.After(since) && false {",
		},
		Package: "pkg/consistencystore", Test: "TestCronJobRunsByWhatTheServerHas/no_read,_each_minute_once",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-one-list", Protection: "one list of the server serves all CronJobs that wait", File: cronJob + "prove.go",
			Old: "	if asked {",
			New: "	if asked && false {",
		},
		Package: "pkg/consistencystore", Test: "TestManyCronJobsAreReadAtOnce",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-history", Protection: "finished Jobs are deleted only for a CronJob that is proven fresh", File: cronJob + "cronjob_controllerv2.go",
			Old: "if numToDelete <= 0 || jm.prove(ctx) != nil {",
			New: "if numToDelete <= 0 {",
		},
		Package: "pkg/consistencystore", Test: "TestFinishedJobsAreDeletedByAProvenLimit/stale",
	},
	{
		Mutant: Mutant{
			Name: "cronjob-lost", Protection: "a CronJob that waited after a creation failed looks its Job up before the next run", File: cronJob + "prove.go",
			Old: "jm.lost.wait(key)",
			New: "jm.lost.forget(key)",
		},
		Package: compositionTests, Test: "TestCronJobFindsTheJobWhoseAnswerWasLost/Forbid",
	},
}
