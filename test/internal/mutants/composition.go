// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package mutants

const (
	compositionTests = "test/composition"
	// RandomHistories is the test of random histories. It takes as many seeds as are needed.
	RandomHistories = "TestSeeds"
	// collections is the test of random histories of owners and dependents.
	collections = "TestCollectorSeeds"
	// memoryComesBack is the soak. It has a part for each of what may leak.
	memoryComesBack = "TestMemoryComesBack"
)

// SeedsOf is the variable that says how many seeds a test of random histories runs.
var SeedsOf = map[string]string{RandomHistories: "SEEDS", collections: "COLLECTOR_SEEDS"}

// parkedReplicaSet has the queue of ReplicaSets forget how often one has failed as soon as it waits.
var parkedReplicaSet = Mutant{
	Name: "backoff", Protection: "an owner that is parked keeps its backoff", File: replicaSet,
	Old: "	if consistencyutil.Parked(err) {\n		return true\n	}\n	if err == nil {\n",
	New: "	if consistencyutil.Parked(err) || err == nil {\n",
}

// mustFind is Find for a mutant that is there.
func mustFind(name string) Mutant {
	m, err := Find(name)
	if err != nil {
		panic(err)
	}
	return m
}

// composition are the mutants that test/composition must find: the random histories, those that make ours worse than upstream
// again, in the way of a finding that was mended; the soak, those that leak.
func composition() []Tested {
	random := func(rule string, m Mutant) Tested {
		return Tested{Mutant: m, Package: compositionTests, Test: RandomHistories, Rule: rule}
	}
	left := func(what string, m Mutant) Tested {
		return Tested{Mutant: m, Package: compositionTests, Test: memoryComesBack + "/" + what}
	}
	return []Tested{
		left("goroutines", leakGoroutine),
		left("heap", leakHeap),
		left("entries", leakRecord),
		left("entries", Mutant{
			Name: "leak-entry", Protection: "an owner without records is not in the tracker's table", File: "pkg/rvtracker/controller.go",
			Old: "	c.table.remove(o)\n	c.busy.Add(-1)\n",
			New: "	c.busy.Add(-1)\n",
		}),
		left("series", Mutant{
			Name: "leak-series", Protection: "no series has the name of an object", File: store,
			Old: "	metrics.Recorded(s.name)\n",
			New: "	metrics.Recorded(s.name + owner.Name)\n",
		}),
		{Package: compositionTests, Test: "TestADeletionFailsWhileWhatIsReadGoesOnChanging/ReplicaSet_nodes", Mutant: parkedReplicaSet},
		random("requests", Mutant{
			Name: "backoff-of-refused", Protection: "an owner whose refused writes are waited for keeps its backoff", File: replicaSet,
			Old: parkedReplicaSet.Old, New: parkedReplicaSet.New, Also: "not-admitted",
		}),
		random("p99", Mutant{
			Name: "cost-check", Protection: "the check of an owner that waits for nothing takes no time", File: store,
			Old: "	s.proveAhead(owner)\n",
			New: "	s.proveAhead(owner)\n	time.Sleep(20 * time.Millisecond)\n",
		}),
		random("age", Mutant{
			Name: "own-hold", Protection: "a 429 holds back the proofs of its resource alone", File: "pkg/freshness/admit.go",
			Old: "	if f != nil && f.overload && builtIn(t.r.gvr) {",
			New: "	if f != nil && f.reason == reasonThrottled {",
		}),
		random("deletion latency", Mutant{
			Name: "prove-ahead", Protection: "what could not be proven of a view is proven before the next one is taken", File: "pkg/consistencystore/ahead.go",
			Old: "	s.ahead[owner] = &ahead{resources: resources, asOf: asOf}\n",
			New: "	_ = &ahead{resources: resources, asOf: asOf}\n",
		}),
		random("node", Mutant{
			Name: "heartbeat", Protection: "a renewTime that goes back is a heartbeat, too", File: "pkg/nodebreaker/heartbeat.go",
			Old: "|| !saved.Spec.RenewTime.Equal(lease.Spec.RenewTime)",
			New: "|| saved.Spec.RenewTime.Before(lease.Spec.RenewTime)",
		}),
		random("podgc", mustFind("uid-podgc")),
		random("podgc", mustFind("proof-podgc")),
		random("quota", mustFind("falls-quota")),
		random("budget", mustFind("rises-disruption")),
		{Package: compositionTests, Test: "TestRegressions/budget-of-another-kind.json", Mutant: Mutant{
			Name: "own-kinds-disruption", Protection: "a budget waits for the proof of no kind of owners that its pods do not have", File: controllers + "disruption/prove.go",
			Old: "append(resources, dc.scaledBy(pdb)...)",
			New: "append(resources, scaleGroupResources...)",
		}},
		{Package: compositionTests, Test: "TestRegressions/budget-whose-failure-is-ignored.json", Mutant: Mutant{
			Name: "ignored-failure", Protection: "a budget whose failed status its controller takes for written is not tried again and again for a value that waits", File: "pkg/consistencystore/ignored.go",
			Old: "	f.ignored, f.since, f.tries = true, false, 0\n	return true\n",
			New: "	return false\n",
		}},
		{Package: compositionTests, Test: "TestRegressions/rollout-that-fails-beside-slow-proofs.json", Mutant: Mutant{
			Name: "forgets-failures", Protection: "a Deployment's queue does not forget the failures of an action while that waits for a proof", File: "pkg/consistencystore/refused.go",
			Old: "return err == nil && fails && s.held.actionOf(owner) != nil",
			New: "return err == nil && fails && false",
		}},
		{Package: compositionTests, Test: "TestADependentThatRefersToItsWaitingOwnerAgain", Mutant: Mutant{
			Name: "orphans-again", Protection: "a dependent that refers to its owner again while that waits is orphaned again", File: controllers + "garbagecollector/garbagecollector.go",
			Old: "	err := gc.orphanDependents(logger, owner.identity, dependents)",
			New: "	err := gc.orphanDependents(logger, owner.identity, map[bool][]*node{false: dependents}[owner.held.Load()])",
		}},
		{Package: compositionTests, Test: "TestRegressions/orphans-of-a-stale-cache.json", Mutant: Mutant{
			Name: "orphans-live", Protection: "a custom resource that was orphaned while its owner waits is read from the server when it is orphaned again", File: controllers + "garbagecollector/patch.go",
			Old: "return found && owner.held.Load()",
			New: "return found && owner.held.Load() && false",
		}},
		{Package: compositionTests, Test: "TestTheServerPutsOffAllWrites", Mutant: Mutant{
			Name: "put-off-status", Protection: "a status that fails beside a write which the server puts off has its turn with the rest of the reconcile", File: "pkg/consistencystore/refused.go",
			Old: "paused = is && !of.goesOn && ",
			New: "paused = false && is && !of.goesOn && ",
		}},
		{Package: compositionTests, Test: "TestTheServerPutsOffAllWrites", Mutant: Mutant{
			Name: "put-off-status-seldom", Protection: "where the server puts all off for long, a status is tried no more often than on stock", File: "pkg/consistencystore/retryafter.go",
			Old: " && !is.paused",
			New: "",
		}},
		{Package: compositionTests, Test: "TestTheServerPutsOffAllWrites", Mutant: Mutant{
			Name: "put-off-status-again", Protection: "the client does not send a Deployment's status again while another write of it is put off", File: "pkg/consistencystore/retryafter.go",
			Old: "		return besides\n",
			New: "		return false && besides\n",
		}},
		{Package: compositionTests, Test: "TestTheServerPutsOffAllWrites", Mutant: Mutant{
			Name: "put-off-status-lost", Protection: "nor one of which the answer is lost", File: "pkg/consistencystore/unsettled.go",
			Old: "		if retry == transport.NeverRetried {\n			return again, false",
			New: "		if retry == transport.NeverRetried || true {\n			return again, false",
		}},
		{Package: compositionTests, Test: "TestTheServerAcceptsSomeOfManyWrites", Mutant: Mutant{
			Name: "put-off-some", Protection: "a write that the server accepts has one more owner try whose writes it puts off, and not all", File: "pkg/consistencystore/retryafter.go",
			Old: "	first.ends()\n	if s.turns.ends != nil {",
			New: "	for _, h := range s.retrying { h.ends() }\n	if s.turns.ends != nil {",
		}},
		{Package: compositionTests, Test: "TestTheServerThrottlesNineOfTenRequests", Mutant: Mutant{
			Name: "throttled-proofs", Protection: "proofs that a busy server answers one after the other add up", File: "pkg/consistencystore/putoff.go",
			Old: "r.asOf, r.keeps = asOf, true",
			New: "r.asOf, r.keeps = asOf, false",
		}},
		{Package: compositionTests, Test: "TestValuesThatQueueForLongerThanTheyWait", Mutant: Mutant{
			Name: "long-queue", Protection: "a value is held for a limited time, however long its object queues", File: "pkg/consistencystore/putoff.go",
			Old: "return !r.another || at.Sub(r.next) <= sameWait",
			New: "return r.ended.IsZero() || at.Sub(r.ended) <= sameWait",
		}},
		{Package: compositionTests, Test: "TestEndpointsOfAServiceThatIsGone", Mutant: Mutant{
			Name: "endpoints-gone", Protection: "Endpoints of a Service that is gone are read from the server if they are not as the cache has them", File: controllers + "endpoint/prove.go",
			Old: "if errors.IsConflict(err) {",
			New: "if errors.IsConflict(err) && false {",
		}},
		{Package: compositionTests, Test: "TestEventsTellOfWritesThatAreAllPutOff", Mutant: Mutant{
			Name: "put-off-creation-told", Protection: "a creation of a pod that the server puts off is no event each time", File: controllers + "controller_utils.go",
			Old: "v1.NamespaceTerminatingCause) && !consistencyutil.Parked(err) {",
			New: "v1.NamespaceTerminatingCause) {",
		}},
		{Package: compositionTests, Test: "TestEventsTellOfWritesThatAreAllPutOff", Mutant: Mutant{
			Name: "put-off-deletion-told", Protection: "nor is a deletion", File: controllers + "controller_utils.go",
			Old: "if !consistencyutil.Parked(err) {\n			r.Recorder.Eventf(object, v1.EventTypeWarning, FailedDelete",
			New: "if true {\n			r.Recorder.Eventf(object, v1.EventTypeWarning, FailedDelete",
		}},
		{Package: compositionTests, Test: "TestEventsTellOfWritesThatAreAllPutOff", Mutant: Mutant{
			Name: "put-off-untold", Protection: "an event tells of a write of pods that the server puts off as often as a client gives up", File: "pkg/consistencystore/retryafter.go",
			Old: "if givesUp && !is.another {",
			New: "if givesUp && !is.another && false {",
		}},
		{Package: compositionTests, Test: "TestADeploymentThatIsPutOffAsksForOneReplicaSet", Mutant: Mutant{
			Name: "put-off-goes-on", Protection: "a Deployment's reconcile ends with a write that the server puts off", File: "pkg/transport/record.go",
			Old: "func (e *retryError) Again() bool { return !e.GoesOn }",
			New: "func (e *retryError) Again() bool { return false }",
		}},
		{Package: compositionTests, Test: "TestWritesThatTheServerPutsOff", Mutant: Mutant{
			Name: "put-off-pause", Protection: "what the server puts off for long is tried no more often than on stock", File: "pkg/consistencystore/retryafter.go",
			Old: "/ resends; rounds > 0 {",
			New: "/ resends; rounds > 0 && false {",
		}},
		{Package: compositionTests, Test: "TestAJobThatTheServerPutsOff", Mutant: Mutant{
			Name: "put-off-besides", Protection: "an owner of which another write fails as well is left to its queue", File: "pkg/consistencystore/retryafter.go",
			Old: "leftToQueue(owner); does {",
			New: "leftToQueue(owner); does && false {",
		}},
		{Package: compositionTests, Test: "TestAWriteThatIsPutOffAfterAStatusThatWasSentAgain", Mutant: Mutant{
			Name: "put-off-after", Protection: "a write that was made after all, as the client sent it again, does not leave an owner to its queue", File: "pkg/consistencystore/refused.go",
			Old: "of.fails, of.again = of.fails-of.again, 0",
			New: "of.again = 0",
		}},
		{Package: compositionTests, Test: "TestADeletionOfAFailedPodThatTheServerPutsOff", Mutant: Mutant{
			Name: "ended-redecided", Protection: "a DaemonSet's deletion of a pod that has ended is not decided again", File: "pkg/consistencystore/retryafter.go",
			Old: "ok && podutil.IsPodTerminal(pod)",
			New: "ok && false && podutil.IsPodTerminal(pod)",
		}},
		{Package: compositionTests, Test: "TestACreationThatFailedIsPutOff", Mutant: Mutant{
			Name: "failed-creation", Protection: "a ReplicaSet says that a creation has failed while the server puts the next one off", File: controllers + "replicaset/replica_set.go",
			Old: " && len(activePods) >= int(*rs.Spec.Replicas)) {",
			New: ") {",
		}},
		{Package: compositionTests, Test: "TestAJobThatTheServerPutsOff", Mutant: Mutant{
			Name: "put-off-first", Protection: "what comes after a write that the server has put off is not sent before it", File: "pkg/consistencystore/unseen.go",
			Old: "if err := s.checkPutOff(owner, what); err != nil {",
			New: "if err := s.checkPutOff(owner, what); err != nil && false {",
		}},
		{Package: compositionTests, Test: "TestADeletionFailsAfterItWasPutOff", Mutant: Mutant{
			Name: "put-off-counts", Protection: "a queue does not count a deletion that is decided again as one that failed", File: controllers + "controller_utils.go",
			Old: "unable to delete pods: %w",
			New: "unable to delete pods: %v",
		}},
		{Package: compositionTests, Test: "TestManyOwnersThatTheServerPutsOff", Mutant: Mutant{
			Name: "put-off-turns", Protection: "of many owners that the server puts off a few at a time are tried", File: "pkg/consistencystore/retryafter.go",
			Old: "next.After(at) {",
			New: "next.After(at) && false {",
		}},
		{Package: compositionTests, Test: "TestManyOwnersThatTheServerPutsOff", Mutant: Mutant{
			Name: "put-off-ends", Protection: "owners come back one after the other once the server accepts again what it has put off", File: "pkg/consistencystore/store.go",
			Old: "	if s.refusals.done(owner, what) {",
			New: "	if s.refusals.done(owner, what) && false {",
		}},
		{Package: compositionTests, Test: "TestQuotaOfPodsThatAListSkips/ended", Mutant: Mutant{
			Name: "list-quota", Protection: "the quotas of a resource are recalculated after a relist of it", File: controllers + "resourcequota/resource_quota_monitor.go",
			Old: "		handlers.BookmarkFunc = qm.follow(ctx, resource, shared)\n",
			New: "		qm.follow(ctx, resource, shared)\n",
		}},
		{Package: compositionTests, Test: "TestAQuotaOfWhichAValueWaitsIsSeldomRecalculated", Mutant: Mutant{
			Name: "counted-waiting", Protection: "a quota is not recalculated again and again for a value that waits", File: controllers + "resourcequota/prove.go",
			Old: "!quota.Equals(quota.Mask(now, decided), quota.Mask(published, decided))",
			New: "!quota.Equals(now, published)",
		}},
		{Mutant: mustFind("start-proof"), Package: compositionTests, Test: "TestRestartOnAnAPIServerThatLags/ReplicaSet,_pods"},
		{Mutant: mustFind("own-writes"), Package: compositionTests, Test: "TestAutoscalerWaitsForItsOwnWrites"},
		{Package: compositionTests, Test: "TestNoClaimForAPodThatHasEnded", Mutant: Mutant{
			Name: "ended-resourceclaim", Protection: "no claim is generated for a pod that has ended", File: controllers + "resourceclaim/controller.go",
			Old: "if pod.DeletionTimestamp != nil || ec.needsNone(pod) {",
			New: "if pod.DeletionTimestamp != nil {",
		}},
		{Package: compositionTests, Test: "TestRegressions/claims-of-a-pod-replaced-while-held.json", Mutant: Mutant{
			Name: "replaced-resourceclaim", Protection: "the claims of a pod are released if a relist shows another pod under its name", File: controllers + "resourceclaim/controller.go",
			Old: "			ec.enqueueReplaced(logger, old, updated)\n",
			New: "",
		}},
		{Package: compositionTests, Test: "TestRegressions/claim-decided-by-the-server-while-it-is-held.json", Mutant: Mutant{
			Name: "decided-resourceclaim", Protection: "a claim that a live read has decided does not come back when its wait ends", File: "pkg/consistencystore/decide.go",
			Old: "		wait.over = true\n",
			New: "",
		}},
		{Package: "pkg/consistencystore", Test: "TestResourceClaims/generated_claim,_ended,_claim_gone", Mutant: Mutant{
			Name: "gone-resourceclaim", Protection: "the deletion of a claim that is gone is not tried again", File: controllers + "resourceclaim/prove.go",
			Old: " || apierrors.IsNotFound(err) && consistencyutil.Proves(ec.consistencyStore)\n",
			New: "\n",
		}},
		{Package: compositionTests, Test: "TestRegressions/pods-ready-just-after-their-proof.json", Mutant: Mutant{
			Name: "counted-now", Protection: "the pods of an autoscaler are proven as of when its metrics were read", File: "pkg/consistencystore/prove.go",
			Old: "asOf[resource] = began.counted.at",
			New: "asOf[resource] = began.counted.at.Add(-ProofAge)",
		}},
		{Package: "pkg/consistencystore", Test: "TestAValueIsLoweredByWhatWasProven/less,_later", Mutant: Mutant{
			Name: "counted-first", Protection: "an autoscaler that has waited goes down no further than by what was proven", File: "pkg/consistencystore/lowered.go",
			Old: "first.to = max(first.to, to)",
			New: "first.to = to",
		}},
		{Package: compositionTests, Test: "TestAStatusIsTriedAgainWhileADeletionWaits", Mutant: Mutant{
			Name: "status-failed", Protection: "a status that cannot be written is tried again soon though an action of its owner waits", File: "pkg/consistencystore/status.go",
			Old: "	if s.statuses == nil || ",
			New: "	if true || s.statuses == nil || ",
		}},
		{Package: compositionTests, Test: "TestAStatusIsRefusedBesideASlowProof", Mutant: Mutant{
			Name: "status-proven", Protection: "a status is left to its queue once the action that waited beside it is proven", File: "pkg/consistencystore/status.go",
			Old: "	return r != nil && !r.forgotten\n",
			New: "	return r != nil\n",
		}},
		{Package: compositionTests, Test: "TestAStatusIsRefusedBesideASlowProof", Mutant: Mutant{
			Name: "status-backoff", Protection: "the tries of a status that fails do not begin anew when an action begins to wait", File: "pkg/consistencystore/status.go",
			Old: "queueDelay(s.refusals.failures(owner))",
			New: "statusRetry",
		}},
		{Package: compositionTests, Test: "TestADaemonSetSurgesWhileADeletionWaits/ours", Mutant: Mutant{
			Name: "surge", Protection: "a DaemonSet surges though a deletion has to wait for a proof", File: controllers + "daemon/daemon_controller.go",
			Old: "	if consistencyutil.Again(unproven) {",
			New: "	if unproven != nil {",
		}},
		{Package: compositionTests, Test: "TestADaemonSetSurgesWhileADeletionWaits/ours", Mutant: Mutant{
			Name: "surge-limit", Protection: "a DaemonSet whose old pods have to wait for a proof has no more pods too many than it may have", File: controllers + "daemon/update.go",
			Old: "remainingSurge -= numReplaced",
			New: "remainingSurge -= 0 * numReplaced",
		}},
		{Package: compositionTests, Test: "TestReplicasThatNoPodsCountForAreLoweredAtOnce", Mutant: Mutant{
			Name: "counted-none", Protection: "replicas for which no pods are counted wait for no proof of pods", File: controllers + "podautoscaler/prove.go",
			Old: "	if !computed || !slices.ContainsFunc(",
			New: "	if !computed || false && !slices.ContainsFunc(",
		}},
		{Package: "pkg/consistencystore", Test: "TestFinalizersThatAreRefusedKeepTheirBackoff/PodGroup", Mutant: Mutant{
			Name: "backoff-finalizers", Protection: "a finalizer that waits keeps the backoff of its refused writes", File: controllers + "util/consistency/dependents.go",
			Old: "	Forget(d.store, key, func(key string) { d.Gone(key); forget(key) })",
			New: "	forget(key)",
		}},
		{Package: "pkg/consistencystore", Test: "TestAnObjectThatWasSparedATryComesBack", Mutant: Mutant{
			Name: "make-up", Protection: "an object whose writes fail comes back soon where its queue was not told to forget failures that stock's may forget", File: "pkg/consistencystore/reading.go",
			Old: "		f.spared = &comeback{after: sparedRetry}\n",
			New: "",
		}},
		{Package: "pkg/consistencystore", Test: "TestAFailedWriteLeavesTheObjectToTheBackoff/failed", Mutant: Mutant{
			Name: "wake-left", Protection: "a value whose wake was left to its queue is woken if the queue does not come", File: "pkg/consistencystore/reading.go",
			Old: "if late && add != nil {",
			New: "if late && add != nil && false {",
		}},
		{Package: compositionTests, Test: "TestAFinalizerThatCannotBeTakenOff/servicecidrs,_none,_no_event", Mutant: Mutant{
			Name: "given-up-values", Protection: "what a queue has given up no value that waits begins anew", File: "pkg/consistencystore/reading.go",
			Old: "if f.tries >= givenUpAfter && s.givesUp() {",
			New: "if f.tries >= givenUpAfter && s.givesUp() && false {",
		}},
		{Package: compositionTests, Test: "TestAFinalizerThatCannotBeTakenOff/volumeattributesclasses,_slow,_events_late", Mutant: Mutant{
			Name: "spares", Protection: "a finalizer that an event has had looked at while it waited is not tried again but once its proof comes, and by its queue's backoff", File: "pkg/consistencystore/reading.go",
			Old: "!f.ignored && s.spares() && (",
			New: "!f.ignored && (",
		}},
		{Package: compositionTests, Test: "TestAFinalizerThatCannotBeTakenOff/podgroups,_none,_no_event", Mutant: Mutant{
			Name: "backoff-values", Protection: "a value that has waited does not try a write again before its queue's backoff does", File: "pkg/consistencystore/store.go",
			Old: "if !leave {",
			New: "if leave || !leave {", Also: "value-pause",
		}},
		{Package: compositionTests, Test: "TestEndpointsThatAreNotSeen", Mutant: Mutant{
			Name: "lagging", Protection: "a Service whose slices or Endpoints the cache lags behind is looked at again once it does not", File: "pkg/consistencystore/lagging.go",
			Old: "	if last {\n		l.queue.Forget(key)",
			New: "	if last && false {\n		l.queue.Forget(key)",
		}},
		{Package: "pkg/consistencystore", Test: "TestAKeyThatLagsForSeveralComesBackForTheLast", Mutant: Mutant{
			Name: "lagging-all", Protection: "a Service whose slices come one by one is looked at again when the last is seen, and not before", File: "pkg/consistencystore/lagging.go",
			Old: "if lags == nil || lags.still() {",
			New: "if lags == nil {",
		}},
		{Package: compositionTests, Test: "TestServiceWhoseSlicesAreSeenOneByOne", Mutant: Mutant{
			Name: "lagging-forgets", Protection: "what has failed because the cache lagged behind a Service's slices prolongs no backoff after that", File: "pkg/consistencystore/lagging.go",
			Old: "		l.queue.Forget(key)\n",
			New: "",
		}},
		{Package: compositionTests, Test: "TestServiceOfWhichASliceIsRefused", Mutant: Mutant{
			Name: "lagging-failed", Protection: "a Service for which anything else has failed is tried no more often because its slices are seen late", File: "pkg/consistencystore/lagging.go",
			Old: "|| l.queue.NumRequeues(key) == 0)",
			New: "|| l.queue.NumRequeues(key) >= 0)",
		}},
		{Package: compositionTests, Test: "TestRegressions/lost-deletion.json", Mutant: relistLost},
		{Package: compositionTests, Test: "TestDeletionBehindLateEvents/ReplicaSet,_pods", Mutant: mustFind("stale-read")},
		{Package: compositionTests, Test: "TestDeletionBehindLateEvents/many_pods_that_change_all_the_time", Mutant: Mutant{
			Name: "caught-up", Protection: "a cache that lags all the time does for what it had when a deletion was put off", File: "pkg/consistencystore/prove.go",
			Old: "return ok && !known.At.Before(since) && began.shows(wants.resource, known)",
			New: "return ok && known.At.After(time.Now()) && began.shows(wants.resource, known)",
		}},
		{Package: compositionTests, Test: "TestARolloutBeginsWhereItsRevisionIsWritten/a_node_joins_after_20ms", Mutant: Mutant{
			Name: "own-revision", Protection: "a rollout begins in the reconcile that has written its revision", File: "pkg/consistencystore/owned.go",
			Old: "	if o.wrote != nil {",
			New: "	if o.wrote != nil && false {",
		}},
		{Mutant: mustFind("deletion-resent"), Package: "pkg/consistencystore", Test: "TestADeletionThatTheServerPutsOffIsDecidedAgain"},
		{Mutant: mustFind("eviction-resent"), Package: "pkg/evictionguard", Test: "TestAnEvictionThatTheServerPutsOffIsDecidedAgain"},
		{Mutant: mustFind("withheld"), Package: "pkg/consistencystore", Test: "TestReconcilesGoOnThoughAnOwnWriteIsNotSeen"},
		{Package: compositionTests, Test: "TestACacheGoesBackThatLacksNothing", Mutant: Mutant{
			Name: "went-back", Protection: "owners do not wait for a cache that went back once it is proven to have what the server has", File: "pkg/rvtracker/relist.go",
			Old: "	if p.back > 0 {",
			New: "	if p.back > 0 && false {",
		}},
		{Mutant: mustFind("overdue"), Package: compositionTests, Test: "TestEventsWhileWritesFail"},
		{Package: compositionTests, Test: "TestAnotherWriteFailsOnceTheFirstSucceeds", Mutant: Mutant{
			Name: "queue-counts", Protection: "an owner of which another write fails than before comes back by all failures that its queue counts", File: "pkg/consistencystore/refused.go",
			Old: "queueDelay(of.queued) > 2*of.at",
			New: "queueDelay(of.since) > 2*of.at",
		}},
		{Mutant: mustFind("successor"), Package: compositionTests, Test: "TestTheStatusOfAPredecessorIsNotWritten"},
		{Mutant: mustFind("available"), Package: compositionTests, Test: "TestDaemonSetRollsAsItsPodsBecomeAvailable/surge,_and_a_new_leader"},
		{Package: compositionTests, Test: "TestDaemonSetOfManyRollsBehindLateEvents/a_node_changes_every_2s", Mutant: Mutant{
			Name: "many-pods", Protection: "more than 100 pods of an owner are read from the server where the cache of pods lags", File: "pkg/consistencystore/live.go",
			Old: "	manyOwned = 5000",
			New: "	manyOwned = fewOwned",
		}},
		{Mutant: mustFind("orphans-gc"), Package: compositionTests, Test: collections, Rule: "orphans"},
		{Package: compositionTests, Test: "TestForegroundDeletionOfWhatIsNotSeen", Mutant: Mutant{
			Name: "foreground-gc", Protection: "an owner does not go before the pods that its foreground deletion waits for, seen or not", File: controllers + "garbagecollector/garbagecollector.go",
			Old: "		if held {\n			return errHeld\n",
			New: "		if held && false {\n			return errHeld\n",
		}},
		{Package: compositionTests, Test: "TestForegroundDeletionWhileWritesFail/pods", Mutant: Mutant{
			Name: "foreground-again", Protection: "the end of an owner's wait has no dependent tried again that has failed", File: controllers + "garbagecollector/prove.go",
			Old: "		if !blocking || !owner.blockedByFailed(queue) {",
			New: "		if true || !owner.blockedByFailed(queue) {",
		}},
		{Package: compositionTests, Test: "TestRegressions/owner-of-one-that-waited-and-one-that-fails.json", Mutant: Mutant{
			Name: "chained-again", Protection: "the end of one that waited has its owner try no other dependent again that has failed", File: controllers + "garbagecollector/graph_builder.go",
			Old: "|| existingNode.held.Load() && ownerNode",
			New: "|| existingNode.held.Load() && false && ownerNode",
		}},
		{Package: compositionTests, Test: "TestOwnerIsReplacedUnseen/stalled", Mutant: Mutant{
			Name: "graph-replaced", Protection: "the graph is told that an owner is gone whose name a relist shows another object under", File: "pkg/graphguard/followed.go",
			Old: "if gone, replaced := replacedBy(was, object); replaced {",
			New: "if gone, replaced := replacedBy(was, object); replaced && false {",
		}},
		{Package: compositionTests, Test: "TestOrphansOfAnEndedWatch", Mutant: Mutant{
			Name: "stale-at", Protection: "what a cache was shown to lack is known while the server refuses to answer", File: "pkg/freshness/resource.go",
			Old: "	if proof.Outcome == Unknown && r.lacks.rv",
			New: "	if proof.Outcome == Proven && r.lacks.rv",
		}},
		{Mutant: mustFind("nodes-attachdetach"), Package: compositionTests, Test: "TestVolumeOfANodeThatIsRepairedUnseen"},
		{Package: compositionTests, Test: "TestRegressions/volume-in-a-long-pass.json", Mutant: Mutant{
			Name: "long-pass", Protection: "a frequent pass that has waited for other writes takes no action by what was proven before them", File: "pkg/consistencystore/pass.go",
			Old: "	if p.frequent && p.store.prover != nil && time.Since(p.began) > ProofAge {",
			New: "	if p.frequent && p.store.prover != nil && false {",
		}},
		{Mutant: mustFind("live-nodes"), Package: compositionTests, Test: "TestServiceOnANodeThatIsNotSeen"},
		{Package: compositionTests, Test: "TestServiceOnANodeThatIsReadSlowly", Mutant: Mutant{
			Name: "late-read", Protection: "an object that is read too slowly for one who asks counts as found for the next", File: "pkg/livereads/shared.go",
			Old: "		if err == nil {\n			c.note(key, val, at)\n",
			New: "		if err == nil && ctx.Value(key) != nil {\n			c.note(key, val, at)\n",
		}},
		{Package: compositionTests, Test: "TestLiveReadsOfABusyServerAreFew/ReplicaSet", Mutant: Mutant{
			Name: "live-pause", Protection: "live reads that fail become fewer", File: "pkg/livereads/try.go",
			Old: "		br.pause = min(max(firstPause, 2*br.pause), longestPause)\n",
			New: "		br.pause = 0\n",
		}},
		{Package: "pkg/livereads", Test: "TestABusyServerIsAskedOnce", Mutant: Mutant{
			Name: "asked-once", Protection: "a live read is not sent again where the server is too busy", File: "pkg/livereads/try.go",
			Old: "		resp.Header.Del(\"Retry-After\")\n",
			New: "",
		}},
		{Package: compositionTests, Test: "TestServiceIsLookedAtAgainWhenTheNodeIsSeen", Mutant: Mutant{
			Name: "node-came", Protection: "the Services of pods on a node that the cache has lacked are looked at again when it is seen", File: controllers + "endpointslice/nodes.go",
			Old: "if !ok || !isNode || !nodes.hasLacked(node.Name) {",
			New: "if true || !ok || !isNode || !nodes.hasLacked(node.Name) {",
		}},
		{Package: compositionTests, Test: "TestQuotaIsMadeWithItsPods/30ms", Mutant: Mutant{
			Name: "count-again-quota", Protection: "the first value of a quota is counted once more after its proof, and soon after it was published", File: controllers + "resourcequota/prove.go",
			Old: "	rq.countAgain(resourceQuota, usage, first, waits, rises)\n",
			New: "",
		}},
		{Package: compositionTests, Test: "TestQuotaFallsWhileAPodIsMade/ours", Mutant: Mutant{
			Name: "count-soon-quota", Protection: "a quota is counted once more soon after it was published", File: controllers + "resourcequota/prove.go",
			Old: "	if !publishes || ",
			New: "	if len(first) == 0 || ",
		}},
		{Package: compositionTests, Test: "TestRegressions/quota-counted-between-two-events.json", Mutant: Mutant{
			Name: "wrong-quota", Protection: "a quota that was counted between two events is recalculated soon after", File: controllers + "resourcequota/prove.go",
			Old: "quota.Equals(q.Status.Used, published) && !quota.Equals(quota.Mask(now, decided), quota.Mask(published, decided))",
			New: "false",
		}},
		{Package: compositionTests, Test: "TestQuotaThatSaysTooLittleCannotBeWritten", Mutant: Mutant{
			Name: "unwritten-quota", Protection: "a quota that could not be written is not counted once more soon", File: controllers + "resourcequota/prove.go",
			Old: "key)+rq.missingUsageQueue.NumRequeues(key) == 0 {",
			New: "key)+rq.missingUsageQueue.NumRequeues(key) >= 0 {",
		}},
		{Package: compositionTests, Test: "TestWhatIsBeingMadeStaysCharged/ours", Mutant: Mutant{
			Name: "short-quota", Protection: "a quota is not recalculated soon after it was published while something is being made", File: controllers + "resourcequota/prove.go",
			Old: "quota.LessThanOrEqual(now, q.Status.Used); !enough || ",
			New: "quota.LessThanOrEqual(now, q.Status.Used); enough || !enough || ",
		}},
		{Package: compositionTests, Test: "TestDeletionKeepsItsTurn/DaemonSet", Mutant: Mutant{
			Name: "next-turn", Protection: "what only needs a newer reading of the caches is reconciled once more in the same turn",
			File: controllers + "util/consistency/provider.go",
			Old:  "	if Again(err) {\n		return reconcile(ctx, key)\n",
			New:  "	if Again(err) {\n		return err\n",
		}},
	}
}
