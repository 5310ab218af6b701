// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

import "slices"

// Tested is a protection that a test of one package has to miss.
type Tested struct {
	Mutant
	// Package is the test's, from the root of the checkout; Test is the test, or subtest, that must fail.
	Package, Test string
	// Rule, of a random history, is the one that ours must break.
	Rule string
}

// Tests returns every mutant that a test has to find.
func Tests() []Tested { return slices.Concat(composition(), tested, nodes, cronJobs, deployments) }

var tested = []Tested{
	{
		Mutant: Mutant{
			Name: "owner-unchanged", Protection: "a deletion is not made for an owner that has changed since it was read", File: "pkg/consistencystore/view.go",
			Old: "return v.own.unchanged()",
			New: "return true",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionDependsOnItsOwnerAndItsPods/spec_of_the_set",
	},
	{
		Mutant: Mutant{
			Name: "pods-unchanged", Protection: "a deletion is not made for pods that have changed since they were counted", File: "pkg/consistencystore/view.go",
			Old: "v.shows(resource, proof) || v.owned[resource].unchanged()",
			New: "v.shows(resource, proof) || v.owned[resource] != nil",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionDependsOnItsOwnerAndItsPods/a_pod_changed",
	},
	{
		Mutant: Mutant{
			Name: "read-again", Protection: "what a deletion rests on is read again if its proofs took longer than a proof may be old", File: "pkg/consistencystore/prove.go",
			Old: "time.Since(began.at) > ProofAge {",
			New: "time.Since(began.at) > ProofAge && false {",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionIsNotForWhatWasReadLongAgo",
	},
	{
		Mutant: Mutant{
			Name: "slow-proof", Protection: "a reconcile waits a second at most for proofs of a slow server", File: "pkg/consistencystore/ask.go",
			Old: "timer := time.NewTimer(wait)",
			New: "timer := time.NewTimer(time.Hour)",
		},
		Package: "pkg/consistencystore", Test: "TestASlowProofHoldsNoWorker",
	},
	{
		Mutant: Mutant{
			Name: "queued-proof", Protection: "proofs serve owners that have queued since theirs came, for as long as a proof takes", File: "pkg/consistencystore/ask.go",
			Old: "asOf = earlier(asOf, began.Add(r.asOf.Sub(r.ended)))",
			New: "_ = earlier(asOf, began.Add(r.asOf.Sub(r.ended)))",
		},
		Package: "pkg/consistencystore", Test: "TestManyThatWaitForOneProofMayQueue",
	},
	{
		Mutant: Mutant{
			Name: "go-on", Protection: "deletions go on as upstream's where nothing can ever be proven", File: "pkg/consistencystore/prove.go",
			Old: "return now.Sub(since) >= goOnAfter",
			New: "return now.Sub(since) < 0",
		},
		Package: "pkg/consistencystore", Test: "TestDeletionsGoOnWhereVersionsCannotBeCompared",
	},
	{
		Mutant: Mutant{
			Name: "relist-owed", Protection: "a deletion needs the proof that a relist left owing", File: "pkg/consistencystore/prove.go",
			Old: `resources = s.needed(resources)
`,
			New: `_ = s.needed(resources)
`,
		},
		Package: "pkg/consistencystore", Test: "TestRepairGoesOnWithoutTheProofOfARelist",
	},
	{
		Mutant: Mutant{
			Name: "missing-index", Protection: "an Indexed Job makes the pod of an index that lacks it while a deletion waits", File: "_output/staging/kubernetes/pkg/controller/job/job_controller.go",
			Old: "terminating := -int32(len(podsToDelete))",
			New: "terminating := int32(0)",
		},
		Package: compositionTests, Test: "TestAnIndexIsMadeWhileADeletionWaits",
	},
	{
		Mutant: Mutant{
			Name: "failed-condition", Protection: "a ReplicaSet says that a deletion has failed until it is tried again", File: "_output/staging/kubernetes/pkg/controller/replicaset/replica_set.go",
			Old: `c.Reason != "FailedDelete" && len`,
			New: `c.Reason != "" && len`,
		},
		Package: compositionTests, Test: "TestADeletionThatFailedWaits",
	},
	{
		Mutant: Mutant{
			Name: "claim", Protection: "a StatefulSet and its pods are proven before a claim gets an owner that takes it along", File: "_output/staging/kubernetes/pkg/controller/statefulset/stateful_pod_control.go",
			Old: "if err := om.proveClaim(claim); err != nil {",
			New: "if err := om.proveClaim(claim); err != nil && false {",
		},
		Package: "pkg/consistencystore", Test: "TestAClaimGetsNoOwnerUnproven",
	},
	{
		Mutant: Mutant{
			Name: "live-read", Protection: "a deletion does not wait for the proof of a large cache that stands still", File: "pkg/consistencystore/live.go",
			Old: "		case <-late:\n			shown = read()",
			New: "		case <-late:\n			_ = shown",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionDoesNotWaitForTheProofOfALargeQuietCache",
	},
	{
		Mutant: Mutant{
			Name: "changed-reading", Protection: "a deletion whose pods have changed since they were read does not wait for the proof of a large cache that stands still", File: "pkg/consistencystore/live.go",
			Old: "what == asCached && first:",
			New: "what == asCached && first && false:",
		},
		Package: "pkg/consistencystore", Test: "TestWhatHasChangedIsReadAgainAtOnce",
	},
	{
		Mutant: Mutant{
			Name: "changed-twice", Protection: "a deletion whose pods have changed since they were read is tried again at once only once in a row", File: "pkg/consistencystore/prove.go",
			Old: "asOf[resource], early == nil)",
			New: "asOf[resource], true)",
		},
		Package: "pkg/consistencystore", Test: "TestWhatHasChangedIsReadAgainAtOnce",
	},
	{
		Mutant: Mutant{
			Name: "recreate-age", Protection: "a Deployment that recreates starts no pods beside those that its ReplicaSet has made a moment ago", File: "pkg/consistencystore/view.go",
			Old: " || v.recreates && resource == podResource {",
			New: " {",
		},
		Package: compositionTests, Test: "TestDeploymentThatRecreatesPodsOfAMomentAgo",
	},
	{
		Mutant: Mutant{
			Name: "outdated-owned", Protection: "what a live read has shown to be outdated is not read again while the cache has it", File: "pkg/consistencystore/live.go",
			Old: "ok && owned.has(of) {",
			New: "ok && owned.has(of) && false {",
		},
		Package: "pkg/consistencystore", Test: "TestWhatIsOutdatedIsNotReadAgain/a_pod_has_changed",
	},
	{
		Mutant: Mutant{
			Name: "outdated-owner", Protection: "an owner that a live read has shown to be outdated is not read again while the cache has it", File: "pkg/consistencystore/live.go",
			Old: "known == own.read {",
			New: "known == own.read && false {",
		},
		Package: "pkg/consistencystore", Test: "TestWhatIsOutdatedIsNotReadAgain/the_spec_has_changed",
	},
	{
		Mutant: Mutant{
			Name: "delete-by-uid", Protection: "a deletion is waited for by the UID of the object, whatever version the answer has", File: "pkg/transport/record.go",
			Old: "	w.store.Deleted(w.owner.Name, w.owner.UID, w.resource(), w.object(), uid)\n",
			New: "",
		},
		Package: "pkg/consistencystore", Test: "TestWritesAreRecorded",
	},
	{
		Mutant: Mutant{
			Name: "suspect-write", Protection: "a write whose version the cache had before it was sent waits for a fence", File: "pkg/rvtracker/controller.go",
			Old: "suspect = t.opts.Fencer != nil && sent.suspect(v)",
			New: "suspect = t.opts.Fencer != nil && sent.suspect(v) && false",
		},
		Package: "pkg/rvtracker", Test: "TestASuspectWriteWaitsForAFence",
	},
	{
		Mutant: Mutant{
			Name: "no-op-update", Protection: "an update that changes nothing is no write", File: "pkg/consistencystore/store.go",
			Old: "if sent.Suspect(answer.ResourceVersion) && s.holds(resource, answer) {",
			New: "if sent.Suspect(answer.ResourceVersion) && s.holds(resource, answer) && false {",
		},
		Package: "pkg/consistencystore", Test: "TestAnUpdateThatChangesNothingIsNoWrite",
	},
	{
		Mutant: Mutant{
			Name: "not-admitted", Protection: "an owner does not wait for the outcome of a write that admission refused, with whatever code", File: "pkg/transport/record.go",
			Old: "refusals.MatchString(status.message)",
			New: "refusals.MatchString(status.message) && false",
		},
		Package: "pkg/transport", Test: "TestAWriteThatWasNotAdmittedWasNotMade/webhook_failed",
	},
	{
		Mutant: Mutant{
			Name: "remade-writes", Protection: "a Deployment that is made again under its name does not wait for writes of the one before", File: "pkg/consistencystore/holds.go",
			Old: "!wait.Deletes() && s.name != deploymentStore",
			New: "!wait.Deletes()",
		},
		Package: "test/composition", Test: "TestAnOwnerDoesNotWaitForWhatItsPredecessorHasWritten/Deployment",
	},
	{
		Mutant: Mutant{
			Name: "remade-deletions", Protection: "a StatefulSet that is made again under its name does not wait for deletions of the one before", File: "pkg/consistencystore/holds.go",
			Old: "!wait.Deletes() && s.name",
			New: "s.name",
		},
		Package: "test/composition", Test: "TestAnOwnerDoesNotWaitForWhatItsPredecessorHasWritten/StatefulSet",
	},
	{
		Mutant: Mutant{
			Name: "remade-before", Protection: "an owner waits for its own writes though a cache that went back shows another of its name", File: "pkg/consistencystore/holds.go",
			Old: " || !wait.Precedes(cached.GetResourceVersion()) {",
			New: " {",
		},
		Package: "pkg/consistencystore", Test: "TestAnOwnerMadeAgainDoesNotWaitForEarlierWrites",
	},
	{
		Mutant: Mutant{
			Name: "wake-again", Protection: "an owner whose action fails is not woken for it besides its queue's backoff, each time that what it had read was old once it was proven", File: "pkg/consistencystore/refused.go",
			Old: "	if !fails {\n		s.wakeAction(owner)",
			New: "	if !fails || true {\n		s.wakeAction(owner)",
		},
		Package: "test/composition", Test: "TestADeletionFailsWhileWhatIsReadGoesOnChanging/DaemonSet_nodes",
	},
	{
		Mutant: Mutant{
			Name: "ending-namespace", Protection: "an owner whose namespace is being deleted does not try again and again to make the pods that are deleted with it", File: "pkg/transport/record.go",
			Old: "if w.endsWithNamespace(resp) {",
			New: "if w.endsWithNamespace(resp) && false {",
		},
		Package: "test/composition", Test: "TestNamespaceIsDeleted/ReplicaSet_1s",
	},
	{
		Mutant: Mutant{
			Name: "resend", Protection: "a creation is not sent again by client-go while nobody knows whether the first was carried out", File: "pkg/transport/record.go",
			Old: "after >= 0 && w.createsAnother()",
			New: "after >= 0 && w.createsAnother() && false",
		},
		Package: "pkg/consistencystore", Test: "TestACreationIsNotSentAgainUnseen",
	},
	{
		Mutant: Mutant{
			Name: "failed-resent", Protection: "a deletion of which the server does not say whether it was made is not sent again by client-go", File: "pkg/transport/record.go",
			Old: "|| after > 0 && w.store.Redecides(w.what(), w.object()) {",
			New: "|| after > 0 && false && w.store.Redecides(w.what(), w.object()) {",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionThatTheServerPutsOffIsDecidedAgain",
	},
	{
		Mutant: Mutant{
			Name: "refused-put-off", Protection: "a write is put off only if the client would send it again", File: "pkg/transport/record.go",
			Old: "resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {",
			New: "false {",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionThatTheServerPutsOffIsDecidedAgain",
	},
	{
		Mutant: Mutant{
			Name: "retry-after", Protection: "an owner is not reconciled before the time for which the server asks to wait is over", File: "pkg/consistencystore/holds.go",
			Old: "if err := s.checkRetryAfter(owner); err != nil {",
			New: "if err := s.checkRetryAfter(owner); err != nil && false {",
		},
		Package: "pkg/consistencystore", Test: "TestAnOwnerWaitsAsTheServerAsks",
	},
	{
		Mutant: Mutant{
			Name: "stale-kept", Protection: "a cache that was shown to be stale counts as stale while nothing can be told of it", File: "pkg/consistencystore/reading.go",
			Old: "	case freshness.Proven:\n		delete(a.stale, resource)",
			New: "	default:\n		delete(a.stale, resource)",
		},
		Package: "pkg/consistencystore", Test: "TestAStaleCacheCountsAsStaleInAnOutage",
	},
	{
		Mutant: Mutant{
			Name: "precondition", Protection: "no deletion is sent without the precondition that its rule promises", File: "pkg/transport/client.go",
			Old: "		next = conditional{next, at, client, exempted}\n",
			New: "		_ = exempted\n",
		},
		Package: "pkg/transport", Test: "TestAnExemptControllerPromisesNothing",
	},
	{
		Mutant: Mutant{
			Name: "path-prefix", Protection: "writes are recorded behind a URL with a path prefix", File: "pkg/transport/endpoint.go",
			Old: "strings.CutPrefix(req.URL.Path, string(e))",
			New: `strings.CutPrefix(req.URL.Path, "")`,
		},
		Package: "pkg/consistencystore", Test: "TestProtectionBehindAPathPrefix",
	},
	{
		Mutant: Mutant{
			Name: "unreadable-path", Protection: "a write that cannot be read leaves upstream's expectations in force, and is counted", File: "pkg/transport/record.go",
			Old: `w.unrecorded(metrics.PathUnreadable, errors.New("its path names no resource"))`,
			New: "_ = errors.New(metrics.PathUnreadable)",
		},
		Package: "pkg/consistencystore", Test: "TestWritesToAPathThatIsNotKnown",
	},
	{
		Mutant: Mutant{
			Name: "nodes-now", Protection: "before a DaemonSet deletes pods the nodes are proven as of its reconcile", File: "pkg/consistencystore/view.go",
			Old: "v.exact || v.own != nil && resource == nodeResource",
			New: "v.exact || v.own == nil && resource == nodeResource",
		},
		Package: "pkg/consistencystore", Test: "TestNodesAreProvenAsOfTheReconcile",
	},
	{
		Mutant: Mutant{
			Name: "one-settler", Protection: "lost answers take one goroutine for a resource", File: "pkg/consistencystore/settle.go",
			Old: "if kick, ok := u.settling[resource]; ok {",
			New: "if kick, ok := u.settling[resource]; ok && len(u.owners) > 8 {",
		},
		Package: "pkg/consistencystore", Test: "TestManyLostAnswersTakeOneGoroutine",
	},
	{
		Mutant: Mutant{
			Name: "followed", Protection: "the outcome of a lost write is not settled before a later write was made", File: "pkg/consistencystore/unsettled.go",
			Old: "	return renewed == nil || o.followed\n",
			New: "	return true\n",
		},
		Package: "pkg/consistencystore", Test: "TestALostWriteIsFollowedByAnother/leader_election",
	},
	{
		Mutant: Mutant{
			Name: "lost-listed", Protection: "owners that wait for the outcome of a lost write are on /stalenessz", File: "pkg/consistencystore/waits.go",
			Old: "		if wants(h.since) {\n",
			New: "		if wants(h.since) && h.reason != stalenessz.ForUnsettled {\n",
		},
		Package: "pkg/consistencystore", Test: "TestLostAnswersAreListed",
	},
	{
		Mutant: Mutant{
			Name: "handled-lag", Protection: "what event handlers keep of a cache counts as old as the slowest of them is behind", File: "pkg/sharedinformers/handled.go",
			Old: "err == nil && order < 0 {",
			New: "err == nil && order < 0 && false {",
		},
		Package: "pkg/sharedinformers", Test: "TestHandledIsAsFarAsTheSlowestHandler",
	},
	{
		Mutant: Mutant{
			Name: "handled-list", Protection: "an event handler that is in the middle of a list has been told of nothing yet", File: "pkg/sharedinformers/handled.go",
			Old: "position := delivery.Told()",
			New: "position := delivery.Position()",
		},
		Package: "pkg/sharedinformers", Test: "TestHandledKnowsNothingOfHalfAList",
	},
	{
		Mutant: Mutant{
			Name: "handled-exact", Protection: "a value whose event handlers lag behind a cache that a list proves is tried with pauses, and for a limited time", File: "pkg/consistencystore/view.go",
			Old: "return earlier.Fresh() && !v.counts(resource)",
			New: "return earlier.Fresh() && !earlier.Exact && !v.counts(resource)",
		},
		Package: "pkg/consistencystore", Test: "TestAValueWaitsForEventHandlersForALimitedTime",
	},
	{
		Mutant: Mutant{
			Name: "refused-pause", Protection: "an action that is put off does not have a refused write tried more often than the queue does", File: "pkg/consistencystore/putoff.go",
			Old: "if !proven {\n\t\t\ts.outlast",
			New: "if !proven && false {\n\t\t\ts.outlast",
		},
		Package: "test/composition", Test: "TestQuotaRefusesWhileADeletionWaits",
	},
	{
		Mutant: Mutant{
			Name: "unknown-pause", Protection: "an action that is put off does not have a write of unknown outcome tried more often than the queue does", File: "pkg/transport/record.go",
			Old: "if unknown || refused && ",
			New: "if refused && ",
		},
		Package: "test/composition", Test: "TestWritesFailWhileADeletionWaits",
	},
	{
		Mutant: Mutant{
			Name: "gone-fails", Protection: "a deletion of what is gone already does not delay what its owner does next", File: "pkg/transport/record.go",
			Old: "refused && !w.gone(resp)",
			New: "refused && (!w.gone(resp) || true)",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionOfWhatIsGoneHasNotFailed",
	},
	{
		Mutant: Mutant{
			Name: "mended-batch", Protection: "a deletion that failed among others that were made delays none of the next", File: "pkg/consistencystore/refused.go",
			Old: "of.mended = of.failed && of.mended",
			New: "of.mended = false",
		},
		Package: "pkg/consistencystore", Test: "TestAnActionThatWasDoneAfterAllIsNotPaused",
	},
	{
		Mutant: Mutant{
			Name: "action-pause", Protection: "an action that fails once it is proven is tried no more often than the queue does", File: "pkg/consistencystore/refused.go",
			Old: "		if proven {\n			left = max(",
			New: "		if proven && false {\n			left = max(",
		},
		Package: "pkg/consistencystore", Test: "TestOnlyAnActionThatFailsIsPausedOnceItIsProven",
	},
	{
		Mutant: Mutant{
			Name: "longest-pause", Protection: "what fails for hours while an action waits is tried as often as a queue does", File: "pkg/consistencystore/refused.go",
			Old: "longestPause = 1000 * time.Second",
			New: "longestPause = 5 * time.Minute",
		},
		Package: "test/composition", Test: "TestStatusesFailForTwoHoursWhileADeletionWaits",
	},
	{
		Mutant: Mutant{
			Name: "longest-action-pause", Protection: "an action that failed for minutes though it was proven is tried within minutes", File: "pkg/consistencystore/refused.go",
			Old: ", of.pause(), longestActionPause)",
			New: ", of.pause(), longestPause)",
		},
		Package: "pkg/consistencystore", Test: "TestAnActionThatFailsForLongPausesForMinutes",
	},
	{
		Mutant: Mutant{
			Name: "action-soon", Protection: "an action whose writes have failed pauses for as long as they have, however many of them there were", File: "pkg/consistencystore/refused.go",
			Old: "min(max(of.at.Sub(of.first), firstPause), of.pause(), longestActionPause)",
			New: "min(of.pause(), longestActionPause)",
		},
		Package: "test/composition", Test: "TestAnActionThatFailedForSecondsIsDoneSoon",
	},
	{
		Mutant: Mutant{
			Name: "given-up", Protection: "a Deployment that its queue has given up is tried once each time that an action of it wakes it in vain", File: "pkg/consistencystore/refused.go",
			Old: "of.failed && of.queued >= givenUpAfter-1, of.caused",
			New: "of.failed && of.queued >= givenUpAfter-1, false",
		},
		Package: "test/composition", Test: "TestWritesFailWhileADeletionWaits",
	},
	{
		Mutant: Mutant{
			Name: "caused-again", Protection: "a reconcile that is made again for a newer reading has its owner left to the store as the first one has", File: "pkg/consistencystore/refused.go",
			Old: "of.woken > 0 || of.caused && !of.failed",
			New: "of.woken > 0",
		},
		Package: "pkg/consistencystore", Test: "TestWhatAnActionHasCausedIsLeftToIt",
	},
	{
		Mutant: Mutant{
			Name: "caused-twice", Protection: "an owner that two waits wake at once is left to the store both times", File: "pkg/consistencystore/refused.go",
			Old: "min(of.woken+1, 2)",
			New: "1",
		},
		Package: "pkg/consistencystore", Test: "TestWhatAnActionHasCausedIsLeftToIt",
	},
	{
		Mutant: Mutant{
			Name: "dropped", Protection: "a Deployment that its queue has given up is tried again, more and more seldom, though nothing changes", File: "pkg/consistencystore/comeback.go",
			Old: "if waits && s.refusals.open(owner) {",
			New: "if waits && s.refusals.open(owner) && false {",
		},
		Package: "test/composition", Test: "TestADeploymentThatItsQueueDrops",
	},
	{
		Mutant: Mutant{
			Name: "listed-proven", Protection: "an action that another reconcile has proven is not listed as waiting", File: "pkg/consistencystore/waits.go",
			Old: "if h.action != nil && h.action.forgotten {",
			New: "if h.action != nil && h.action.forgotten && false {",
		},
		Package: "pkg/consistencystore", Test: "TestAnActionThatWasProvenIsNotListed",
	},
	{
		Mutant: Mutant{
			Name: "status-meanwhile", Protection: "a status that fails while it waits for its next try waits from then on", File: "pkg/consistencystore/comeback.go",
			Old: "left = time.Until(c.at.Add(after))",
			New: "left = 0",
		},
		Package: "pkg/consistencystore", Test: "TestAStatusThatFailsMeanwhileWaitsFromThenOn",
	},
	{
		Mutant: Mutant{
			Name: "value-pause", Protection: "a value whose write failed is left to the queue's backoff though a look comes between that only waits", File: "pkg/consistencystore/refused.go",
			Old: "left := s.pauses(owner, r)",
			New: "left := 0 * s.pauses(owner, r)",
		},
		Package: "test/composition", Test: "TestReservationsThatCannotBeDropped",
	},
	{
		Mutant: Mutant{
			Name: "autoscaler-value", Protection: "an autoscaler whose write failed is left to its period when a proof comes", File: "pkg/consistencystore/reading.go",
			Old: "		pause = longestPause ",
			New: "		",
		},
		Package: "test/composition", Test: "TestAutoscalerThatWaitsAndCannotWrite",
	},
	{
		Mutant: Mutant{
			Name: "value-woken", Protection: "a look that a value has caused does not end the backoff of its object's failed write", File: "pkg/consistencystore/reading.go",
			Old: "		if !f.woken {\n",
			New: "		if true {\n",
		},
		Package: "pkg/consistencystore", Test: "TestAReadingThatNoValueCausedEndsThePause",
	},
	{
		Mutant: Mutant{
			Name: "value-tie", Protection: "a value of which writes fail for long is not woken in the moment in which its queue brings it back", File: "pkg/consistencystore/reading.go",
			Old: "longestPause+firstPause)",
			New: "longestPause)",
		},
		Package: "pkg/consistencystore", Test: "TestAReadingThatNoValueCausedEndsThePause",
	},
	{
		Mutant: Mutant{
			Name: "gone-waits", Protection: "an owner that is deleted while its action is put off leaves the page", File: "pkg/consistencystore/waits.go",
			Old: "known && cached == nil {",
			New: "known && cached == nil && false {",
		},
		Package: "pkg/consistencystore", Test: "TestAnOwnerThatIsGoneDoesNotWait",
	},
	{
		Mutant: Mutant{
			Name: "remade-waits", Protection: "an owner that is made again while an action of the one before waits has waited since it asked itself", File: "pkg/consistencystore/putoff.go",
			Old: "earlier.forgotten || earlier.uid != r.uid {",
			New: "earlier.forgotten {",
		},
		Package: "pkg/consistencystore", Test: "TestAnOwnerThatIsGoneDoesNotWait/the_wait_has_ended_false,_made_again_true",
	},
	{
		Mutant: Mutant{
			Name: "remade-waited", Protection: "an owner that is made again soon after an action of the one before has waited has waited since it asked itself", File: "pkg/consistencystore/putoff.go",
			Old: "ok && earlier.uid == r.uid && earlier",
			New: "ok && earlier",
		},
		Package: "pkg/consistencystore", Test: "TestAnOwnerThatIsGoneDoesNotWait/the_wait_has_ended_true,_made_again_true",
	},
	{
		Mutant: Mutant{
			Name: "remade-lags", Protection: "a cache that lags all the time does for an owner only by what it had when that owner's own action was put off", File: "pkg/consistencystore/prove.go",
			Old: "if r == nil || r.uid != owner.UID || !r.goesOn",
			New: "if r == nil || !r.goesOn",
		},
		Package: "pkg/consistencystore", Test: "TestAnOwnerMadeAgainWaitsForACacheThatLags/second",
	},
	{
		Mutant: Mutant{
			Name: "each-action", Protection: "an owner's action does not wait anew because another one of it is proven", File: "pkg/consistencystore/ask.go",
			Old: "	if len(r.wanted) == 0 {",
			New: "	if len(r.wanted) >= 0 {",
		},
		Package: "pkg/consistencystore", Test: "TestAProofForOneActionLeavesTheWaitOfAnother/stale",
	},
	{
		Mutant: Mutant{
			Name: "others-revision", Protection: "a deletion waits for another reading where somebody else has written a revision of its owner meanwhile", File: "pkg/consistencystore/owned.go",
			Old: "case versionOf(object) != written:",
			New: "case false:",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionDependsOnTheRevisionsOfItsOwner/one_made_by_another",
	},
	{
		Mutant: Mutant{
			Name: "changed-revision", Protection: "a revision that the reconcile has changed does not hide that another one is gone", File: "pkg/consistencystore/owned.go",
			Old: "case o.before[written.uid]:",
			New: "default:",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionDependsOnTheRevisionsOfItsOwner/one_made,_another_deleted",
	},
	{
		Mutant: Mutant{
			Name: "many-revisions", Protection: "a deletion does not wait for the proof of many revisions, but reads its owner's", File: "pkg/consistencystore/live.go",
			Old: "(resource != revisionResource || !l.few(resource))",
			New: "resource != revisionResource",
		},
		Package: "pkg/consistencystore", Test: "TestADeletionDoesNotWaitForTheProofOfManyRevisions/few_false",
	},
	{
		Mutant: Mutant{
			Name: "proof-meanwhile", Protection: "a proof counts that comes while a live read takes long", File: "pkg/consistencystore/live.go",
			Old: "			if proof.Fresh() {\n				return reply{proof: proof}",
			New: "			if proof.Fresh() && shown == nil {\n				return reply{proof: proof}",
		},
		Package: "pkg/consistencystore", Test: "TestAProofThatComesDuringALiveReadCounts",
	},
	{
		Mutant: Mutant{
			Name: "late-help", Protection: "a watch by which all comes late is not ended before what is missing may have come", File: "pkg/stalenessmonitor/probed.go",
			Old: "max(stalledFor, min(c.delay, longestDelay))",
			New: "stalledFor",
		},
		Package: "pkg/stalenessmonitor", Test: "TestHelpWaitsForWhatIsOnItsWay",
	},
	{
		Mutant: Mutant{
			Name: "in-time", Protection: "once changes come in time again, a watch that is stalled is ended at once", File: "pkg/stalenessmonitor/probed.go",
			Old: "		case c.inTime(rv):",
			New: "		case false:",
		},
		Package: "pkg/stalenessmonitor", Test: "TestHelpWaitsForWhatIsOnItsWay",
	},
	{
		Mutant: Mutant{
			Name: "lags-slowly", Protection: "a cache of which proofs are late does for what it had when a deletion was put off", File: "pkg/consistencystore/prove.go",
			Old: "if (slow || proof.Outcome == freshness.Stale) &&",
			New: "if proof.Outcome == freshness.Stale &&",
		},
		Package: "pkg/consistencystore", Test: "TestAProofForOneActionLeavesTheWaitOfAnother/slow",
	},
	{
		Mutant: Mutant{
			Name: "wanted-again", Protection: "an action that was not wanted while its owner waited for another one waits anew", File: "pkg/consistencystore/putoff.go",
			Old: "if w.asked.Before(earlier.began) {",
			New: "if false {",
		},
		Package: "pkg/consistencystore", Test: "TestAnActionThatIsWantedAgainLaterWaitsAnew",
	},
	{
		Mutant: Mutant{
			Name: "waits-too", Protection: "the second action of a reconcile waits from when the first was put off for the same cache", File: "pkg/consistencystore/prove.go",
			Old: "		s.waitsToo(owner, action, resources)",
			New: "		_ = s.waitsToo",
		},
		Package: "pkg/consistencystore", Test: "TestTheSecondActionOfAReconcileWaitsFromThenOn",
	},
	{
		Mutant: Mutant{
			Name: "known-then", Protection: "what a cache was known to have when a reconcile began counts for its actions", File: "pkg/consistencystore/prove.go",
			Old: "if !ok || known.At.Before(since) {",
			New: "if true {",
		},
		Package: "pkg/consistencystore", Test: "TestAnActionGoesOnByWhatWasKnownWhenItsReconcileBegan",
	},
	{
		Mutant: Mutant{
			Name: "finalizer-off", Protection: "a finalizer that was taken off without a proof is not taken off again, though the cache does not see that it is off",
			File: controllers + "util/consistency/dependents.go",
			Old:  "d.Gone(key); forget(key)",
			New:  "forget(key)",
		},
		Package: "pkg/consistencystore", Test: "TestFinalizersAreTakenOffOnce",
	},
	{
		Mutant: Mutant{
			Name: "value-gone", Protection: "the end of a wait brings no object back of which nothing is left to do", File: "pkg/consistencystore/reading.go",
			Old: "			r.over = true\n			s.held.forget(r)\n",
			New: "			s.held.forget(r)\n",
		},
		Package: "pkg/consistencystore", Test: "TestFinalizersAreTakenOffOnce",
	},
	{
		Mutant: Mutant{
			Name: "another-object", Protection: "the wait of an object does not shorten that of another one of its name", File: "pkg/consistencystore/putoff.go",
			Old: "				earlier.begin(r)\n",
			New: "",
		},
		Package: "pkg/consistencystore", Test: "TestFinalizerOfAnotherObjectOfTheNameWaits",
	},
	{
		Mutant: Mutant{
			Name: "value-event", Protection: "an event has a value tried again before the queue's backoff is over", File: "pkg/consistencystore/reading.go",
			Old: "	if f.asked.After(f.at) {\n",
			New: "	if false {\n",
		},
		Package: "pkg/consistencystore", Test: "TestAReadingThatNoValueCausedEndsThePause",
	},
	{
		Mutant: Mutant{
			Name: "autoscaler-pause", Protection: "an autoscaler whose write failed is left to its period", File: "pkg/transport/record.go",
			Old: "consistency.Wrote(req.Context(), unknown || refused)",
			New: "consistency.Wrote(req.Context(), false)",
		},
		Package: "test/composition", Test: "TestAutoscalerThatWaitsAndCannotWrite",
	},
	{
		Mutant: Mutant{
			Name: "autoscaler-status", Protection: "an autoscaler whose replicas could not be changed is left to its period though its status was written", File: "pkg/consistencystore/refused.go",
			Old: "is = of.failed && !of.mended",
			New: "is = false && !of.mended",
		},
		Package: "test/composition", Test: "TestAutoscalerThatWaitsAndCannotWrite",
	},
	{
		Mutant: Mutant{
			Name: "mended-write", Protection: "an object of which a write failed is woken once that was made after all", File: "pkg/consistencystore/refused.go",
			Old: "is = of.failed && !of.mended",
			New: "is = of.failed",
		},
		Package: "pkg/consistencystore", Test: "TestAFailedWriteLeavesTheObjectToTheBackoff",
	},
	{
		Mutant: Mutant{
			Name: "autoscaler-failed", Protection: "an autoscaler that waits says once, and not each time it is tried, that its replicas cannot be changed", File: controllers + "podautoscaler/prove.go",
			Old: "	if able.Reason == \"FailedUpdateScale\" {",
			New: "	if false && able.Reason == \"FailedUpdateScale\" {",
		},
		Package: "test/composition", Test: "TestAutoscalerThatWaitsAndCannotWrite",
	},
	{
		Mutant: Mutant{
			Name: "autoscaler-unsettled", Protection: "an autoscaler does not wait for the outcome of a write of its status", File: "pkg/consistencystore/unsettled.go",
			Old: "s.prover == nil || s.name == autoscaler {",
			New: "s.prover == nil {",
		},
		Package: "test/composition", Test: "TestAutoscalerWhoseStatusIsUnknownGoesOn",
	},
	{
		Mutant: Mutant{
			Name: "early-pass", Protection: "pod garbage collection looks early only once the cache is proven", File: "pkg/consistencystore/refused.go",
			Old: "return s.period > 0 && !r.forgotten",
			New: "return s.period < 0 && !r.forgotten",
		},
		Package: "test/composition", Test: "TestPodGCLooksNoMoreOftenWhileItWaits",
	},
	{
		Mutant: Mutant{
			Name: "predecessor", Protection: "an owner waits for no lost write of another that had its name", File: "pkg/consistencystore/unsettled.go",
			Old: "if s.gone(owner, o.uid) {",
			New: "if s.gone(owner, o.uid) && false {",
		},
		Package: "test/composition", Test: "TestAnOwnerDoesNotWaitForTheWritesOfItsPredecessor",
	},
	{
		Mutant: Mutant{
			Name: "even-fences", Protection: "a cache that lags passes one fence after the other, however many are taken within its lag", File: "pkg/freshness/resource.go",
			Old: "gap < least {",
			New: "gap < least && i == 1 {",
		},
		Package: "pkg/freshness", Test: "TestACacheThatLagsPassesFences",
	},
	{
		Mutant: Mutant{
			Name: "paused-action", Protection: "a deletion that is proven does not wait for another write that fails", File: "pkg/consistencystore/refused.go",
			Old: "if isAction(of.what) && !of.mended {\n			left",
			New: "if !of.mended {\n			left",
		},
		Package: "pkg/consistencystore", Test: "TestOnlyAnActionThatFailsIsPausedOnceItIsProven",
	},
	{
		Mutant: Mutant{
			Name: "status-written", Protection: "a status that was written at last ends the backoff of those that were not", File: "pkg/consistencystore/store.go",
			Old: "		s.forgetStatus(owner)\n",
			New: "",
		},
		Package: "pkg/consistencystore", Test: "TestAStatusThatWasWrittenIsForgotten",
	},
	{
		Mutant: Mutant{
			Name: "predecessor-fails", Protection: "an object that is made again under its name does not pause for what has failed for the one before", File: "pkg/consistencystore/refused.go",
			Old: "of.uid != \"\" && of.uid != uid",
			New: "of.uid != \"\" && of.uid != uid && false",
		},
		Package: "pkg/consistencystore", Test: "TestFailuresOfAnotherObjectOfItsNameDoNotMatter",
	},
	{
		Mutant: Mutant{
			Name: "goes-on", Protection: "repair does not wait for what an owner has written to itself, or as a revision, where upstream's does not", File: "pkg/consistencystore/unseen.go",
			Old: "return s.goesOn != nil && resource == goesOn[s.name]",
			New: "return s.goesOn != nil && resource == goesOn[s.name] && false",
		},
		Package: "test/composition", Test: "TestOwnersWhoseOwnEventsAreLate",
	},
	{
		Mutant: Mutant{
			Name: "made-again", Protection: "a revision that an owner has written and that is not seen is not asked for again", File: "pkg/consistencystore/unseen.go",
			Old: "			return true, nil\n",
			New: "			return false, nil\n",
		},
		Package: "pkg/consistencystore", Test: "TestReconcilesGoOnThoughAnOwnWriteIsNotSeen",
	},
	{
		Mutant: Mutant{
			Name: "withheld-limit", Protection: "a write waits for an earlier one of its owner for a limited time", File: "pkg/consistencystore/unseen.go",
			Old: "last.at.Add(rvtracker.OwnerLimits.Stale)",
			New: "last.at.Add(99 * rvtracker.OwnerLimits.Stale)",
		},
		Package: "test/composition", Test: "TestRevisionsThatAreNotSeen",
	},
	{
		Mutant: Mutant{
			Name: "withheld-owner", Protection: "a write does not wait for one of another owner of its name", File: "pkg/consistencystore/unseen.go",
			Old: "case cached != nil && cached.GetUID() != last.owner:",
			New: "case false && cached.GetUID() != last.owner:",
		},
		Package: "pkg/consistencystore", Test: "TestAWriteIsNotWithheldForAnotherOwnerOfItsName",
	},
	{
		Mutant: Mutant{
			Name: "slow-proofs", Protection: "where proofs take long, actions that follow one upon the other wait for one of them", File: "pkg/consistencystore/slowproofs.go",
			Old: "ok && !last.came.Before(since)",
			New: "ok && last.came.After(time.Now())",
		},
		Package: compositionTests, Test: "TestDeletionsWhileReadsAreSlow",
	},
	{
		Mutant: Mutant{
			Name: "slow-lag", Protection: "no proof counts for longer because the cache had to catch up", File: "pkg/consistencystore/reading.go",
			Old: "proof.Took(asked) > promptly",
			New: "time.Since(asked) > promptly",
		},
		Package: "pkg/consistencystore", Test: "TestAProofThatTookLongCountsFromWhenItCame/the_cache_had_to_catch_up",
	},
	{
		Mutant: Mutant{
			Name: "slow-exact", Protection: "no proof counts for longer where none may be older than what was read", File: "pkg/consistencystore/slowproofs.go",
			Old: "if p == nil || age == 0 {",
			New: "if p == nil {",
		},
		Package: "pkg/consistencystore", Test: "TestAProofThatTookLongCountsFromWhenItCame/none_may_be_older",
	},
	{
		Mutant: Mutant{
			Name: "successor-waits", Protection: "an owner that was deleted waits until the cache has the one that was made again under its name", File: "pkg/consistencystore/successor.go",
			Old: "s.Wrote(owner, ownerUID, own, object, rvtracker.Sent{})",
			New: "_ = rvtracker.Sent{}",
		},
		Package: "pkg/consistencystore", Test: "TestAnUpdateOfAnOwnersSuccessorIsNotSent/its_successor's_status",
	},
	{
		Mutant: Mutant{
			Name: "successor-back", Protection: "an owner does not come back to write its status to the one that was made again under its name", File: "pkg/consistencystore/successor.go",
			Old: "s.forgetStatus(owner)",
			New: "",
		},
		Package: "pkg/consistencystore", Test: "TestAnOwnerDoesNotComeBackForItsSuccessorsStatus",
	},
	{
		Mutant: Mutant{
			Name: "stalled-relist", Protection: "an informer relists if the watch after a stalled one is stalled as well", File: "pkg/transport/watches.go",
			Old: "if b.relists = relist && n > 1 && b.bytes.Load() == 0; b.relists {",
			New: "if relist && n > 1 && b.bytes.Load() == 0 && false {",
		},
		Package: "pkg/transport", Test: "TestWatchThatBringsNothingAgainIsFollowedByAList",
	},
	{
		Mutant: Mutant{
			Name: "flows", Protection: "an informer relists after a stalled watch only if other watches bring what it lacks, or it has few objects", File: "pkg/stalenessmonitor/probed.go",
			Old: "relist := c.flows && c.lacks() || c.objects <= smallList",
			New: "relist := true",
		},
		Package: "pkg/stalenessmonitor", Test: "TestAnInformerRelistsIfEventsFlow",
	},
	{
		Mutant: Mutant{
			Name: "flows-asked", Protection: "a watch shows whether events flow, where only a list has shown that a cache is behind", File: "pkg/stalenessmonitor/probe.go",
			Old: "	if !ask {\n",
			New: "	if ask = false; !ask {\n",
		},
		Package: "pkg/stalenessmonitor", Test: "TestAnInformerRelistsIfEventsFlow",
	},
	{
		Mutant: Mutant{
			Name: "rare-ends", Protection: "watches of a resource are not ended again so soon", File: "pkg/transport/watches.go",
			Old: "now.Sub(e.last) < max(e.interval, minEndInterval) {",
			New: "now.Sub(e.last) < max(e.interval, minEndInterval) && false {",
		},
		Package: "pkg/transport", Test: "TestEndsAreRare",
	},
	{
		Mutant: Mutant{
			Name: "shared-turns", Protection: "a watch that no protected controller reads is asked about as often as it says, though many others are found behind", File: "pkg/stalenessmonitor/schedule.go",
			Old: "case waited >= p.sharedEvery:", New: "case waited >= sharedAtLeast:",
		},
		Package: "pkg/stalenessmonitor", Test: "TestHeldWatchesOfAllQuietResourcesAtOnce",
	},
	{
		Mutant: Mutant{
			Name: "handler-lag", Protection: "it is known for how long a handler has been behind its cache", File: "pkg/stalenessmonitor/backlog.go",
			Old: "return max(0, now.Sub(b.marks[i].at))",
			New: "return max(0, b.marks[i].at.Sub(now))",
		},
		Package: "pkg/sharedinformers", Test: "TestABacklogIsSeen",
	},
	{
		Mutant: Mutant{
			Name: "handed-over", Protection: "what is delivered is what a handler has returned from, not what it was given", File: "pkg/sharedinformers/handlers.go",
			Old: `	h.ResourceEventHandler.OnUpdate(was, object)
	h.tell(object)`,
			New: `	h.tell(object)
	h.ResourceEventHandler.OnUpdate(was, object)`,
		},
		Package: "pkg/sharedinformers", Test: "TestAHandlerThatHangs",
	},
	{
		Mutant: Mutant{
			Name: "list-ends-hold", Protection: "only a list ends the hold after a rewind, and no event from before it", File: "pkg/rvtracker/line.go",
			Old: "moved < 0 || moved > 0 && !l.reportsLists",
			New: "moved != 0",
		},
		Package: "pkg/rvtracker", Test: "TestAnEventFromBeforeTheRestoreEndsNoHold",
	},
	{
		Mutant: Mutant{
			Name: "hold-bounded", Protection: "a hold after a rewind ends after 5 min if no list comes", File: "pkg/rvtracker/safety.go",
			Old: "return held >= OwnerLimits.Stale ||",
			New: "return held >= 99*OwnerLimits.Stale ||",
		},
		Package: "pkg/rvtracker", Test: "TestAHoldIsBoundedThoughNoListComes",
	},
	{
		Mutant: Mutant{
			Name: "doubt-bounded", Protection: "a hold after a rewind ends after 1 min if no fence succeeds, whatever the error", File: "pkg/rvtracker/safety.go",
			Old: "min(held, now.Sub(s.doubt.since)) >= OwnerLimits.Unknown",
			New: "min(held, now.Sub(s.doubt.since)) >= OwnerLimits.Stale",
		},
		Package: "pkg/rvtracker", Test: "TestADoubtThatNothingCanSettleIsGivenUp/no_fence_succeeds",
	},
	{
		Mutant: Mutant{
			Name: "regression-bounded", Protection: "a hold by a cache that went back ends after a time", File: "pkg/rvtracker/source.go",
			Old: "	if !blocked {\n		s.heldSince",
			New: "	if !rewound {\n		s.heldSince",
		},
		Package: "pkg/rvtracker", Test: "TestARegressionHoldsForALimitedTime/no_fence_succeeds",
	},
	{
		Mutant: Mutant{
			Name: "regression-stale", Protection: "a cache that went back, and is shown to be stale, holds for 5 min", File: "pkg/rvtracker/safety.go",
			Old: " || !s.doubted && !s.wentBack\n",
			New: "\n",
		},
		Package: "pkg/rvtracker", Test: "TestARegressionHoldsForALimitedTime/a_fence_has_shown_it_is_stale",
	},
	{
		Mutant: Mutant{
			Name: "ahead-at-once", Protection: "the proofs of an object's values that are made before it is read are made at once", File: "pkg/consistencystore/reading.go",
			Old: "proofs.Go(func() { s.proveAhead(owner) })",
			New: "s.proveAhead(owner)",
		},
		Package: "pkg/consistencystore", Test: "TestManyValuesOfAnObjectHoldNoWorker",
	},
	{
		Mutant: Mutant{
			Name: "empty-fence", Protection: "the objects of a small cache are counted before each fence, as a collection that has become empty is proven by it", File: "pkg/freshness/prove.go",
			Old: "	if n > few {",
			New: "	if n > 0 {",
		},
		Package: "pkg/freshness", Test: "TestFenceAsksForNoObject/namespaced",
	},
	{
		Mutant: Mutant{
			Name: "late-begin", Protection: "a live read begins when its lane is looked at", File: "pkg/livereads/try.go",
			Old: "	b.mu.Lock()\n	defer b.mu.Unlock()\n	now := time.Now()\n	br := b.breakers[l]\n",
			New: "	now := time.Now()\n	b.mu.Lock()\n	defer b.mu.Unlock()\n	br := b.breakers[l]\n",
		},
		Package: "pkg/livereads", Test: "TestAReadThatIsLateToBeginKeepsNoTurn",
	},
	{
		Mutant: Mutant{
			Name: "orphans-waiting", Protection: "the graph of an owner that waits is not read again before the proof", File: "pkg/graphguard/guard.go",
			Old: "return o != nil && o.proven.IsZero()",
			New: "return o != nil && !o.proven.IsZero()",
		},
		Package: "pkg/graphguard", Test: "TestAnOwnerWaitsForAllThatMayHaveDependents",
	},
	{
		Mutant: Mutant{
			Name: "orphans-at-once", Protection: "what the graph has is orphaned at once", File: controllers + "garbagecollector/garbagecollector.go",
			Old: "	if guard := gc.dependencyGraphBuilder.guard; guard != nil && guard.Waiting(owner.identity.UID) {",
			New: "	if guard := gc.dependencyGraphBuilder.guard; guard != nil && (guard.Waiting(owner.identity.UID) || gc.dependencyGraphBuilder.held(owner, false, gc.attemptToOrphan)) {",
		},
		Package: compositionTests, Test: "TestWhatIsSeenIsOrphanedAtOnce",
	},
	{
		Mutant: Mutant{
			Name: "doubt-fenced", Protection: "a cache that is used though it may predate a rewind is fenced until that is settled", File: "pkg/rvtracker/safety.go",
			Old: "if s.doubted && !s.doubt.fenced || !s.usable()",
			New: "if !s.usable()",
		},
		Package: "pkg/rvtracker", Test: "TestADoubtedStoreThatIsUsedIsTrustedAgain",
	},
	{
		Mutant: Mutant{
			Name: "lost-write", Protection: "a write that a rewind may have undone is waited for for a limited time", File: "pkg/rvtracker/safety.go",
			Old: "s.unprovable || s.trustedAnyway\n",
			New: "s.unprovable\n",
		},
		Package: "pkg/rvtracker", Test: "TestAWriteThatMayBeLostIsNotWaitedForWithoutEnd",
	},
	{
		Mutant: Mutant{
			Name: "list-come", Protection: "a list that has come after a rewind is not asked for again", File: "pkg/rvtracker/doubt.go",
			Old: "s.doubted && !s.renewed(s.doubt.at)",
			New: "s.doubted",
		},
		Package: "pkg/rvtracker", Test: "TestAListThatHasComeIsNotAskedForAgain",
	},
	{
		Mutant: Mutant{
			Name: "list-since", Protection: "a list that has begun since a rewind was first shown is of after it", File: "pkg/rvtracker/fence.go",
			Old: "	if !known {\n		s.listSince = now\n",
			New: "	s.listSince = now\n	if !known {\n",
		},
		Package: "pkg/rvtracker", Test: "TestAListSinceTheDoubtIsSpared",
	},
	{
		Mutant: Mutant{
			Name: "list-spared", Protection: "a list under way is not begun again each time that it is asked for", File: "pkg/transport/watches.go",
			Old: "(!b.lists || b.opened.Before(since) || ",
			New: "(!b.lists || true || ",
		},
		Package: "pkg/transport", Test: "TestAListUnderWayIsSpared/slow",
	},
	{
		Mutant: Mutant{
			Name: "list-stalled", Protection: "a list under way that is stalled is begun again", File: "pkg/transport/watches.go",
			Old: "|| w.silentAt(b, now)) {",
			New: "|| w.silentAt(b, now) && false) {",
		},
		Package: "pkg/transport", Test: "TestAListUnderWayIsSpared/stalled",
	},
	{
		Mutant: Mutant{
			Name: "list-before", Protection: "a list under way that began before a rewind is begun again", File: "pkg/transport/watches.go",
			Old: "!b.lists || b.opened.Before(since) ||",
			New: "!b.lists ||",
		},
		Package: "pkg/transport", Test: "TestAListFromBeforeIsNotSpared",
	},
	{
		Mutant: Mutant{
			Name: "list-resumed", Protection: "a watch that brings no list is ended for one, whatever it brings", File: "pkg/transport/watches.go",
			Old: "(!b.lists || ",
			New: "(",
		},
		Package: "pkg/transport", Test: "TestAWatchSinceThenIsNotSpared",
	},
	{
		Mutant: Mutant{
			Name: "list-begun", Protection: "an informer that lists by itself is not made to list again later", File: "pkg/transport/watches.go",
			Old: "	case e.resuming == 0:\n",
			New: "	case lists || e.resuming == 0:\n",
		},
		Package: "pkg/transport", Test: "TestAListThatHasBegunIsNotAskedFor",
	},
	{
		Mutant: Mutant{
			Name: "list-told", Protection: "the list of one informer counts for no other of the resource", File: "pkg/transport/watches.go",
			Old: "	case lists && e.told > 0:\n",
			New: "	case lists && e.told > 0 && e.resuming == 0:\n",
		},
		Package: "pkg/transport", Test: "TestTwoInformersOfAResourceRelist/one_after_the_other",
	},
	{
		Mutant: Mutant{
			Name: "relist-one", Protection: "a cache that waits for its list has the informers of no other resource relist", File: "pkg/wiring/wiring.go",
			Old: "w.watches.Relist(resource, since))",
			New: "cache.RelistReflectors())",
		},
		Package: "pkg/wiring", Test: "TestCachesThatWaitForTheirListsHaveNoOthersRelist",
	},
	{
		Mutant: Mutant{
			Name: "hold-below", Protection: "a rewind holds a cache that is below the fence which shows it, unless it went back to there", File: "pkg/rvtracker/fence.go",
			Old: "return pos.isZero() || followed && ",
			New: "return pos.isZero() || (followed || true) && ",
		},
		Package: "pkg/rvtracker", Test: "TestAStoreBelowTheFenceIsNotTrusted",
	},
	{
		Mutant: Mutant{
			Name: "back-before", Protection: "a cache that was relisted from an apiserver that lagged has not followed a rewind that came after", File: "pkg/rvtracker/fence.go",
			Old: "		s.wentBack = false // ",
			New: "		// ",
		},
		Package: "pkg/rvtracker", Test: "TestAStoreThatWentBackBeforeIsNotTrusted/a_fence_has_shown_that_it_lags",
	},
	{
		Mutant: Mutant{
			Name: "back-doubted", Protection: "a cache that went back before another resource has shown a rewind has not followed it", File: "pkg/rvtracker/fence.go",
			Old: "		followed = s.renewed(s.doubt.at)\n",
			New: "		followed = followed || s.renewed(s.doubt.at)\n",
		},
		Package: "pkg/rvtracker", Test: "TestAStoreThatWentBackBeforeIsNotTrusted/another_resource_shows_the_rewind",
	},
	{
		Mutant: Mutant{
			Name: "list-past-fence", Protection: "a list that outran the fence which shows a rewind is looked at, and not waited for again", File: "pkg/rvtracker/fence.go",
			Old: "	case listed:\n",
			New: "	case listed && false:\n",
		},
		Package: "pkg/rvtracker", Test: "TestAListThatOutrunsTheFenceIsLookedAt",
	},
	{
		Mutant: Mutant{
			Name: "list-again", Protection: "a list that is waited for after a rewind is asked for again", File: "pkg/rvtracker/doubt.go",
			Old: "now.Before(s.relistDue) || !s.relists.take(now) {",
			New: "now.Before(s.relistDue) || !s.relists.take(now) || true {",
		},
		Package: "pkg/rvtracker", Test: "TestAListIsAskedForAgain",
	},
	{
		Mutant: Mutant{
			Name: "doubt-at-once", Protection: "the fence that a doubt waits for is sent at once", File: "pkg/rvtracker/doubt.go",
			Old: "	s.lastFence = time.Time{} // ",
			New: "	// ",
		},
		Package: "pkg/rvtracker", Test: "TestTheFenceOfADoubtIsSentAtOnce",
	},
	{
		Mutant: Mutant{
			Name: "fence-overtaken", Protection: "a fence that a rewind has overtaken is sent again soon", File: "pkg/rvtracker/safety.go",
			Old: "err != nil && tok.epoch == tok.src.epoch\n",
			New: "err != nil\n",
		},
		Package: "pkg/rvtracker", Test: "TestAFenceThatARewindOvertakesIsSentAgainSoon",
	},
	{
		Mutant: Mutant{
			Name: "doubt-outlasts", Protection: "a cache that is used because no list comes after a rewind proves nothing", File: "pkg/rvtracker/safety.go",
			Old: "	s.trustedAnyway = s.outdated || s.doubted\n",
			New: "	s.trustedAnyway, s.doubted = s.outdated, false\n",
		},
		Package: "pkg/rvtracker", Test: "TestADoubtedStoreThatIsUsedIsNotTrusted",
	},
	{
		Mutant: Mutant{
			Name: "write-past-known", Protection: "the answer to a write is a fence only if it is past what was known when that was sent", File: "pkg/rvtracker/fence.go",
			Old: "	case !sent.token.top.less(v):\n",
			New: "	case !sent.token.top.less(v) && false:\n",
		},
		Package: "pkg/rvtracker", Test: "TestTheAnswerToAWriteIsAFence",
	},
	{
		Mutant: Mutant{
			Name: "doubted-cache", Protection: "a cache proves nothing once another resource has shown a rewind, until it was relisted", File: "pkg/rvtracker/fence.go",
			Old: "return s.epoch, !s.outdated && !s.doubted",
			New: "return s.epoch, !s.outdated",
		},
		Package: "pkg/freshness", Test: "TestADoubtedCacheProvesNothing",
	},
	{
		Mutant: Mutant{
			Name: "epoch-proofs", Protection: "what was proven before a rewind is void", File: "pkg/freshness/resource.go",
			Old: "	if epoch != r.epoch || r.trusted && !trusted {\n",
			New: "	if r.trusted && !trusted {\n",
		},
		Package: "pkg/freshness", Test: "TestWhatWasProvenBeforeARewindIsVoid",
	},
	{
		Mutant: Mutant{
			Name: "epoch-fence", Protection: "a fence from before a rewind does not count after it", File: "pkg/freshness/resource.go",
			Old: "	if r.sample(); f.Epoch != r.epoch {\n",
			New: "	if r.sample(); f.Epoch != r.epoch && false {\n",
		},
		Package: "pkg/freshness", Test: "TestAFenceThatIsNotedLate",
	},
	{
		Mutant: Mutant{
			Name: "doubt-seen", Protection: "no doubt begins and ends without what was proven before it being void", File: "pkg/freshness/prove.go",
			Old: "		r.trusts() // ",
			New: "		// ",
		},
		Package: "pkg/freshness", Test: "TestADoubtThatNobodyLookedAt",
	},
	{
		Mutant: Mutant{
			Name: "doubt-fence", Protection: "a proof does not count if its fence is from before a doubt", File: "pkg/freshness/quietlist.go",
			Old: "	if !covers || void || ",
			New: "	if _ = void; !covers || ",
		},
		Package: "pkg/freshness", Test: "TestADoubtDuringAProof",
	},
	{
		Mutant: Mutant{
			Name: "epoch-told", Protection: "the monitor forgets nothing for a fence from before a rewind that it is told of late", File: "pkg/stalenessmonitor/probed.go",
			Old: "&& (newer || f.Epoch > c.fences[0].Epoch) {",
			New: "{",
		},
		Package: "pkg/stalenessmonitor", Test: "TestNothingIsKeptAcrossEpochs",
	},
	{
		Mutant: Mutant{
			Name: "relist-bounded", Protection: "a hold after a relist is bounded, so that repair goes on", File: "pkg/rvtracker/relist.go",
			Old: "return d != nil && d.asked && now.Sub(d.since) >= limit",
			New: "return d != nil && d.asked && now.Sub(d.since) >= limit && false",
		},
		Package: "pkg/rvtracker", Test: "TestARelistHoldIsBounded",
	},
	{
		Mutant: Mutant{
			Name: "own-history", Protection: "a rewind of an aggregated API is confirmed by a core resource before all informers relist", File: "pkg/rvtracker/doubt.go",
			Old: "return core(resource) || resource.Resource",
			New: "return core(resource) || true || resource.Resource",
		},
		Package: "pkg/rvtracker", Test: "TestAHistoryOfItsOwnConcernsNobodyElse",
	},
	{
		Mutant: Mutant{
			Name: "relists-spaced", Protection: "relists of all informers are spaced, further and further apart", File: "pkg/rvtracker/doubt.go",
			Old: "if now.Before(p.next) {",
			New: "if now.Before(p.next) && false {",
		},
		Package: "pkg/rvtracker", Test: "TestRelistsOfAllAreSpaced",
	},
	{
		Mutant: Mutant{
			Name: "flapping-hooks", Protection: "definitions that flap leave no observers behind", File: "pkg/rvtracker/tracker.go",
			Old: "h, known := t.hooks[store]",
			New: "h, known := (*hook)(nil), false",
		},
		Package: "pkg/rvtracker", Test: "TestNothingGrowsWhenDiscoveryFlaps",
	},
	{
		Mutant: Mutant{
			Name: "request-timeout", Protection: "a request about a definition that is gone ends", File: "pkg/freshness/client.go",
			Old: "ctx, cancel := context.WithTimeout(ctx, c.timeout(gvr))",
			New: "ctx, cancel := context.WithCancel(ctx)",
		},
		Package: "pkg/wiring", Test: "TestNoGoroutineIsLeftOfDefinitionsThatAreGone",
	},
	{
		Mutant: Mutant{
			Name: "slow-log", Protection: "nothing is logged with the tracker's lock held", File: "pkg/rvtracker/note.go",
			Old: "t.note(func() { logger.Info(msg, keysAndValues...) })",
			New: "logger.Info(msg, keysAndValues...)",
		},
		Package: "pkg/rvtracker", Test: "TestASlowLogHoldsUpNobody",
	},
	{
		Mutant: Mutant{
			Name: "gone-series", Protection: "no series come back of definitions that are gone", File: "pkg/metrics/staleness.go",
			Old: "if _, gone := s.gone[r]; !gone {",
			New: "if _, gone := s.gone[r]; !gone || true {",
		},
		Package: "pkg/metrics", Test: "TestNothingIsKeptOfDefinitionsThatAreGone",
	},
	{
		Mutant: Mutant{
			Name: "answer-limit", Protection: "what is read of an answer to a proof is limited in bytes", File: "pkg/freshness/client.go",
			Old: "if b.left -= n; b.left < 0 {",
			New: "if b.left -= n; b.left < 0 && false {",
		},
		Package: "pkg/freshness", Test: "TestAnswerIsLimited",
	},
	{
		Mutant: Mutant{
			Name: "version-limit", Protection: "a resource version has 64 digits at most", File: "pkg/freshness/version.go",
			Old: "if len(rv) > maxDigits {",
			New: "if len(rv) > maxDigits && false {",
		},
		Package: "pkg/freshness", Test: "TestVersionIsLimited",
	},
	{
		Mutant: Mutant{
			Name: "page-limit", Protection: "a list for a proof has a number of pages at most", File: "pkg/freshness/quietlist.go",
			Old: `	for range maxPages(limit) {
`,
			New: `	for range maxPages(100 * limit) {
`,
		},
		Package: "pkg/freshness", Test: "TestListEnds/one_object_a_page",
	},
	{
		Mutant: Mutant{
			Name: "list-progress", Protection: "a list for a proof ends if a page brings nothing new", File: "pkg/freshness/quietlist.go",
			Old: "len(out.objects) == before {",
			New: "len(out.objects) == before && false {",
		},
		Package: "pkg/freshness", Test: "TestListEnds/the_same_page_without_end",
	},
	{
		Mutant: Mutant{
			Name: "list-time", Protection: "a list for a proof takes a minute at most", File: "pkg/freshness/quietlist.go",
			Old: "context.WithTimeout(ctx, maxPageTimes*r.p.opts.RequestTimeout)",
			New: "context.WithCancel(ctx)",
		},
		Package: "pkg/freshness", Test: "TestListTakesATimeAtMost",
	},
	{
		Mutant: Mutant{
			Name: "readable-errors", Protection: "the text of a server's error is one line without control characters", File: "pkg/freshness/classify.go",
			Old: "return printable(cut(e.err.Error()))",
			New: "return cut(e.err.Error())",
		},
		Package: "pkg/freshness", Test: "TestTextOfServersIsReadable",
	},
	{
		Mutant: Mutant{
			Name: "page-rows", Protection: "/stalenessz has 1,000 rows of a table at most", File: "pkg/stalenessz/longest.go",
			Old: "len(l.rows) > MaxRows {",
			New: "len(l.rows) > MaxRows && false {",
		},
		Package: "pkg/stalenessz", Test: "TestPageIsBounded",
	},
	{
		Mutant: Mutant{
			Name: "page-shared", Protection: "/stalenessz is made once a second for all readers", File: "pkg/stalenessz/page.go",
			Old: "time.Since(p.made.view.Now) >= sharedFor {",
			New: "time.Since(p.made.view.Now) >= 0 {",
		},
		Package: "pkg/stalenessz", Test: "TestAnswersAreShared",
	},
	{
		Mutant: Mutant{
			Name: "page-readers", Protection: "16 read /stalenessz at the same time at most", File: "pkg/stalenessz/page.go",
			Old: "if p.readers >= maxReaders {",
			New: "if p.readers >= maxReaders && false {",
		},
		Package: "pkg/stalenessz", Test: "TestReadersThatStall",
	},
	{
		Mutant: Mutant{
			Name: "plain-text", Protection: "/stalenessz shows no control characters", File: "pkg/stalenessz/page.go",
			Old: "if !utf8.ValidString(text) ||",
			New: "if false && !utf8.ValidString(text) ||",
		},
		Package: "pkg/stalenessz", Test: "TestTextFromElsewhereIsPlain",
	},
	{
		Mutant: Mutant{
			Name: "job-limit", Protection: "a Job fails by a limit that can be raised only if its spec is proven", File: controllers + "job/job_controller.go",
			Old: "if unproven := jm.proveFailure(ctx, jobCtx); unproven != nil {",
			New: "if unproven := jm.proveFailure(ctx, jobCtx); unproven != nil && false {",
		},
		Package: "pkg/consistencystore", Test: "TestAJobFailsByALimitOnlyIfProven/deadline,_unproven",
	},
	{
		Mutant: Mutant{
			Name: "graph-handed", Protection: "a proof counts once the graph has what the cache has", File: "pkg/graphguard/followed.go",
			Old: "reached := f.list == \"\" && freshness.Passed(f.position, rv)",
			New: "reached := freshness.Passed(rv, rv)",
		},
		Package: "pkg/graphguard", Test: "TestAProofCountsOnceTheGraphHasWhatTheCacheHas",
	},
	{
		Mutant: Mutant{
			Name: "graph-bounded", Protection: "no owner waits without limit for its graph to be proven", File: "pkg/graphguard/limits.go",
			Old: "		return now.Sub(o.since) >= rvtracker.OwnerLimits.Unknown\n",
			New: "		return false && now.Sub(o.since) >= rvtracker.OwnerLimits.Unknown\n",
		},
		Package: "pkg/graphguard", Test: "TestAnOwnerWaitsForALimitedTime",
	},
	{
		Mutant: Mutant{
			Name: "graph-waited", Protection: "an owner whose finalizer cannot be taken off does not wait for as long again at each try", File: "pkg/graphguard/guard.go",
			Old: "case (reached || waited) && !o.since.After(asOf):",
			New: "case (reached || waited && false) && !o.since.After(asOf):",
		},
		Package: "pkg/graphguard", Test: "TestAnOwnerWaitsForAsLongAsItMayOnce",
	},
	{
		Mutant: Mutant{
			Name: "graph-shared", Protection: "owners share the proofs of their graph, one of a resource in 2 s", File: "pkg/graphguard/guard.go",
			Old: "next := f.asking.last.Add(askEvery)",
			New: "next := f.asking.last.Add(askEvery / 100)",
		},
		Package: "pkg/graphguard", Test: "TestManyOwnersShareTheirProofs",
	},
	{
		Mutant: Mutant{
			Name: "graph-absence", Protection: "an absent owner is looked up again from a relist on until the graph has it", File: "pkg/graphguard/guard.go",
			Old: "	g.graph.TrustAbsence(false)\n",
			New: "",
		},
		Package: "pkg/graphguard", Test: "TestARelistPutsWhatWasKnownInDoubt",
	},
	{
		Mutant: Mutant{
			Name: "tokens-client", Protection: "the tokens controller's writes are recorded, and refused once the lease has run out", File: kcmApp + "service_accounts.go",
			Old: "rootClients(ctx, rootClientBuilder))",
			New: "rootClientBuilder)",
		},
		Package: "cmd/kube-controller-manager", Test: "TestNoClientEscapes",
	},
	{
		Mutant: Mutant{
			Name: "accounts-client", Protection: "the controllers' service accounts are made by the leader only", File: kcmApp + "seams.go",
			Old: "accounts, err := root.Client(kubeControllerManager)",
			New: "accounts, err := clientbuilder.SimpleControllerClientBuilder{ClientConfig: dynamic.ClientConfig}.Client(kubeControllerManager)",
		},
		Package: "cmd/kube-controller-manager", Test: "TestServiceAccountsAreMadeByTheLeaderOnly",
	},
}
