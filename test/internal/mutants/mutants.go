// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package mutants lists the protections of this project that have no gate of their own, each with the edit of pkg/
// that takes it away. A scenario that holds without its protection tests nothing.
package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one protection and the edit that takes it away.
type Mutant struct {
	// Name is short and unique.
	Name string
	// Protection says what the edit takes away.
	Protection string
	// File, from the root of the checkout, has Old exactly once; New comes in its place.
	File, Old, New string
	// Also names another mutant, of another file, that would hide what this one takes away: its edit is made as well, and those that it names.
	Also string
}

// All returns every mutant that a scenario on a real control plane has to find.
func All() []Mutant { return slices.Clone(all) }

// Find returns the mutant of that name.
func Find(name string) (Mutant, error) {
	for _, m := range slices.Concat(all, leaks, costs) {
		if m.Name == name {
			return m, nil
		}
	}
	if i := slices.IndexFunc(tested, func(t Tested) bool { return t.Name == name }); i >= 0 {
		return tested[i].Mutant, nil
	}
	return Mutant{}, fmt.Errorf("there is no mutant %q", name)
}

// Apply returns the file with the edit made, and an error if the file has changed so that it cannot be.
func (m Mutant) Apply(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	if n := strings.Count(string(content), m.Old); n != 1 {
		return nil, fmt.Errorf("mutant %s: %s has its text %d times, not once: adapt it to the file:\n%s", m.Name, m.File, n, m.Old)
	}
	return []byte(strings.Replace(string(content), m.Old, m.New, 1)), nil
}

// edits are the mutant and all that go with it.
func (m Mutant) edits() []Mutant {
	if m.Also == "" {
		return []Mutant{m}
	}
	return append([]Mutant{m}, m.also().edits()...)
}

// also is the other mutant, of a scenario or of a test.
func (m Mutant) also() Mutant {
	if i := slices.IndexFunc(Tests(), func(t Tested) bool { return t.Name == m.Also }); i >= 0 {
		return Tests()[i].Mutant
	}
	return mustFind(m.Also)
}

// Overlay puts the edited files into a folder, and returns a file for the option -overlay of the go command: the checkout
// stays as it is, and the compiler is told to read the edited file instead. A folder that lasts spares building again what
// is up to date.
func (m Mutant) Overlay(root, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, edit := range m.edits() {
		content, err := edit.Apply(root)
		if err != nil {
			return "", err
		}
		edited := filepath.Join(dir, filepath.Base(edit.File))
		if err := os.WriteFile(edited, content, 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(edit.File))] = edited
	}
	files, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, files, 0o644)
}

const (
	store       = "pkg/consistencystore/store.go"
	gate        = "pkg/consistencystore/holds.go"
	controllers = "_output/staging/kubernetes/pkg/controller/"
	replicaSet  = controllers + "replicaset/replica_set.go"
	deployment  = controllers + "deployment/"
	podGC       = controllers + "podgc/gc_controller.go"
	cronJob     = controllers + "cronjob/"
	kcmApp      = "_output/staging/kubernetes/cmd/kube-controller-manager/app/"
)

// relistLost has a test of its own, and hides what a scenario is about.
var relistLost = Mutant{
	Name: "relist-lost", Protection: "the informer of a cache that lacks what it has passed relists", File: "pkg/wiring/monitor.go",
	Old: "n := w.watches.Relist(gvr.GroupResource(), time.Now())",
	New: "n := w.watches.Relist(schema.GroupResource{}, time.Now())",
}

var all = []Mutant{
	{
		Name: "own-writes", Protection: "an owner is reconciled only on a cache that has its controller's own writes", File: gate,
		Old: "	return s.checkOwnWrites(owner)\n",
		New: "	return nil\n",
	},
	{
		Name: "withheld", Protection: "a write waits until the cache shows an earlier one of its owner on which it would rest", File: "pkg/consistencystore/unseen.go",
		Old: "withholds := last != nil && last.before",
		New: "withholds := last != nil && last.before && false",
	},
	{
		Name: "successor", Protection: "the status of an owner that was deleted is not written to the one that was made again under its name", File: "pkg/consistencystore/successor.go",
		Old: "object.Name != owner.Name ||",
		New: "object.Name == owner.Name ||",
	},
	{
		Name: "wake", Protection: "a parked owner is woken when its cache has caught up", File: "pkg/rvtracker/tracker.go",
		Old: "		t.wake(o)\n",
		New: "		_ = o.c\n",
	},
	{
		Name: "proofs", Protection: "the caches behind a disruptive action of a reconcile are proven fresh", File: "pkg/consistencystore/prove.go",
		Old: "if replies[resource].shown || proof.Fresh() && began.showsNow(resource, proof) {",
		New: "if replies[resource].shown || proof.Fresh() && began.showsNow(resource, proof) || true {",
	},
	{
		Name: "owner-daemonset", Protection: "a DaemonSet's own spec is proven before it deletes pods", File: controllers + "daemon/daemon_controller.go",
		Old: "ProveFresh(ctx, dsc.consistencyStore, daemonsetGroupResource, podGroupResource, nodeGroupResource)",
		New: "ProveFresh(ctx, dsc.consistencyStore, podGroupResource, nodeGroupResource)",
	},
	{
		Name: "pods-daemonset", Protection: "a DaemonSet's pods are proven before a batch of a rolling update", File: controllers + "daemon/update.go",
		Old: "ProveFresh(ctx, dsc.consistencyStore, daemonsetGroupResource, podGroupResource, revisionGroupResource)",
		New: "ProveFresh(ctx, dsc.consistencyStore, daemonsetGroupResource, revisionGroupResource)",
	},
	{
		Name: "history-daemonset", Protection: "a DaemonSet's own spec is proven before old revisions are deleted", File: controllers + "daemon/update.go",
		Old: "		if toKill == len(old)-toKeep { // The first one.\n",
		New: "		if toKill == len(old)-toKeep && toKill < 0 {\n",
	},
	{
		Name: "owner-statefulset", Protection: "a StatefulSet's own spec is proven before it deletes pods", File: controllers + "statefulset/prove.go",
		Old: "		return nil\n	}\n	return consistencyutil.ProveFresh(om.requests(), om.consistencyStore, statefulSetGroupResource, podGroupResource)\n}\n\n// proveClaim",
		New: "		return nil\n	}\n	return consistencyutil.ProveFresh(om.requests(), om.consistencyStore, podGroupResource)\n}\n\n// proveClaim",
	},
	{
		Name: "owner-replicaset", Protection: "the own spec of a ReplicaSet or ReplicationController is proven before it deletes pods", File: replicaSet,
		Old: "ProveFresh(ctx, rsc.consistencyStore, rsc.ownResource(), podGroupResource)",
		New: "ProveFresh(ctx, rsc.consistencyStore, podGroupResource)",
	},
	{
		Name: "pods-replicaset", Protection: "the pods of a ReplicaSet or ReplicationController are proven before it deletes some", File: replicaSet,
		Old: "ProveFresh(ctx, rsc.consistencyStore, rsc.ownResource(), podGroupResource)",
		New: "ProveFresh(ctx, rsc.consistencyStore, rsc.ownResource())",
	},
	{
		Name: "owner-job", Protection: "a Job's own spec is proven before it deletes pods", File: controllers + "job/prove.go",
		Old: "ProveFresh(ctx, jm.consistencyStore, jobGroupResource, podGroupResource)",
		New: "ProveFresh(ctx, jm.consistencyStore, podGroupResource)",
	},
	{
		Name: "pods-job", Protection: "a Job's pods are proven before it deletes some", File: controllers + "job/prove.go",
		Old: "ProveFresh(ctx, jm.consistencyStore, jobGroupResource, podGroupResource)",
		New: "ProveFresh(ctx, jm.consistencyStore, jobGroupResource)",
	},
	{
		Name: "pods-deployment", Protection: "the pods of a Deployment that recreates are proven before new ones start", File: deployment + "prove.go",
		Old: "		return nil\n	}\n	return consistencyutil.ProveFresh(ctx, dc.consistencyStore, deploymentGroupResource, replicaSetGroupResource, podGroupResource)\n}\n\n// scaleProven",
		New: "		return nil\n	}\n	return consistencyutil.ProveFresh(ctx, dc.consistencyStore, deploymentGroupResource, replicaSetGroupResource)\n}\n\n// scaleProven",
	},
	deploymentCleanup,
	{
		Name: "proof-podgc", Protection: "the pods are proven before pod garbage collection deletes some that have ended", File: podGC,
		Old: "deleteCount <= 0 || unproven(ctx, whenTerminated, podGroupResource)",
		New: "deleteCount <= 0",
	},
	{
		Name: "nodes-podgc", Protection: "the nodes are proven before pod garbage collection deletes pods of those out of service", File: podGC,
		Old: "deleteCount == 0 || unproven(ctx, whenOutOfService, nodeGroupResource)",
		New: "deleteCount == 0",
	},
	{
		Name: "nodes-attachdetach", Protection: "the nodes are proven before a volume is detached by force", File: controllers + "volume/attachdetach/reconciler/reconciler.go",
		Old: "(forceDetachTimeoutExpired || hasOutOfServiceTaint) && unproven(ctx, attachedVolume.NodeName)",
		New: "(forceDetachTimeoutExpired || hasOutOfServiceTaint) && false",
	},
	{
		Name: "uid-podgc", Protection: "pod garbage collection deletes by UID", File: podGC,
		Old: "consistencyutil.OnlyUID(gcc.consistencyStore, pod.UID, metav1.NewDeleteOptions(0))",
		New: "metav1.NewDeleteOptions(0)", Also: "precondition",
	},
	{
		Name: "falls-quota", Protection: "what a quota has used falls only by caches that are proven fresh", File: controllers + "resourcequota/prove.go",
		Old: "		if known && value.Cmp(old) >= 0 {",
		New: "		if known {",
	},
	{
		Name: "classes-quota", Protection: "what a quota of an extended resource has used falls only by device classes that are proven fresh", File: controllers + "resourcequota/prove.go",
		Old: "		out = append(out, resourceClaims, v1.Resource(\"pods\"), deviceClasses)\n",
		New: "",
	},
	{
		Name: "rises-disruption", Protection: "more disruptions are allowed only by caches that are proven fresh", File: controllers + "disruption/prove.go",
		Old: "	if byCache <= before {",
		New: "	if byCache <= before || true {",
	},
	{
		Name: "orphans-gc", Protection: "the orphan finalizer is taken off only if the graph is proven to have all dependents", File: controllers + "garbagecollector/garbagecollector.go",
		Old: "	if gc.dependencyGraphBuilder.held(owner, false, gc.attemptToOrphan) {",
		New: "	if gc.dependencyGraphBuilder.held(owner, false, gc.attemptToOrphan) && false {",
	},
	{
		Name: "absence-gc", Protection: "an owner that was absent is looked up again after a relist", File: controllers + "garbagecollector/prove.go",
		Old: "TrustAbsence: gb.absentOwnerCache.trust,",
		New: "TrustAbsence: func(bool) {},",
	},
	{
		Name: "proof-cronjob", Protection: "a CronJob is proven fresh, or read from the server, before it runs a Job", File: cronJob + "prove.go",
		Old: "	if _, ok := ctx.Value(insteadKey{}).(instead); ok {",
		New: "	if _, ok := ctx.Value(insteadKey{}).(instead); ok || true {",
	},
	{
		Name: "proof-resourceclaim", Protection: "a claim is released only for a pod that is gone by a proven cache or a live read", File: controllers + "resourceclaim/prove.go",
		Old: "	return done\n}",
		New: "	return true\n}",
	},
	{
		Name: "proof-service-cidr", Protection: "the finalizer of a ServiceCIDR is taken off only by caches that are proven fresh", File: controllers + "servicecidrs/servicecidrs_controller.go",
		Old: " || !c.dependents.Proven(ctx) {",
		New: " {",
	},
	{
		Name: "proof-vac-protection", Protection: "the finalizer of a VolumeAttributesClass is taken off only by caches that are proven fresh", File: controllers + "volume/vacprotection/vac_protection_controller.go",
		Old: " || !c.dependents.Proven(ctx)",
		New: "",
	},
	{
		Name: "proof-podgroup-protection", Protection: "the finalizer of a PodGroup is taken off only by caches that are proven fresh", File: controllers + "scheduling/podgroupprotection/podgroup_protection_controller.go",
		Old: " && c.dependents.Proven(ctx)",
		New: "",
	},
	{
		Name: "live-nodes", Protection: "a node that the cache lacks is looked up on the server before its pods are no endpoints", File: controllers + "endpointslice/nodes.go",
		Old: "	if live, liveErr := n.live(name); liveErr == nil {",
		New: "	if live, liveErr := n.live(name); liveErr == nil && false {",
	},
	{
		Name: "proof-hpa", Protection: "an autoscaler lowers replicas only by caches that are proven fresh", File: controllers + "podautoscaler/prove.go",
		Old: "	if desired >= current {",
		New: "	if desired >= current || true {",
	},
	{
		Name: "service-endpoint", Protection: "a Service is gone by a proven cache, or by the server, before its Endpoints are deleted", File: controllers + "endpoint/prove.go",
		Old: "	if !e.serviceGone(ctx, endpoints) {",
		New: "	if !e.serviceGone(ctx, endpoints) && false {",
	},
	{
		Name: "version-endpointslicemirroring", Protection: "a mirrored EndpointSlice is deleted only as it was read", File: controllers + "endpointslicemirroring/reconciler.go",
		Old: "EndpointSlices(namespace).Delete(ctx, endpointSlice.Name, *consistencyutil.OnlyAsRead(r.consistencyStore, endpointSlice, &metav1.DeleteOptions{}))",
		New: "EndpointSlices(namespace).Delete(ctx, endpointSlice.Name, metav1.DeleteOptions{})", Also: "precondition",
	},
	{
		Name: "version-csrcleaner", Protection: "the cleaner of certificate signing requests deletes one only as it has read it", File: controllers + "certificates/cleaner/cleaner.go",
		Old: "*consistencyutil.OnlyAsRead(ccc.consistencyStore, csr, &metav1.DeleteOptions{})",
		New: "metav1.DeleteOptions{}", Also: "precondition",
	},
	{
		Name: "claim-persistentvolume-binder", Protection: "a volume is not reclaimed while the server has its claim", File: controllers + "volume/persistentvolume/prove.go",
		Old: "err != nil || !released || !proves {",
		New: "err != nil || !released || !proves || claimOf(live) == claimOf(decided) {",
	},
	{
		Name: "version-tokencleaner", Protection: "the token cleaner deletes a token only as it has read it", File: controllers + "bootstrap/tokencleaner.go",
		Old: "*consistencyutil.OnlyAsRead(tc.consistencyStore, secret, &options)",
		New: "options", Also: "precondition",
	},
	{
		Name: "start-proof", Protection: "caches are proven as new as the start of leadership before the first reconcile", File: gate,
		Old: "if err := s.held.refuse(owner); err != nil {",
		New: "if err := s.held.refuse(owner); err != nil && false {",
	},
	{
		Name: "start-informers", Protection: "controllers start only once their caches are proven as new as the start of leadership", File: "pkg/sharedinformers/start.go",
		Old: "	if !f.caches.opts.Waits(name) {",
		New: "	if !f.caches.opts.Waits(name) || true {",
	},
	{
		Name: "opaque", Protection: "a version that cannot be compared does not satisfy a record", File: "pkg/rvtracker/version.go",
		Old: `	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		return version{}, false
	}
	return version{lo: bigLo, big: rv}, true
}

func (v version) compare(w version) int {
	switch {
`,
		New: `	return version{lo: bigLo, big: rv}, true
}

func (v version) compare(w version) int {
	switch {
	case v.lo == bigLo || w.lo == bigLo:
		return 0
`,
		Also: "suspect-write",
	},
	{
		Name: "opaque-graph", Protection: "an API whose versions cannot be compared holds up no owner that is deleted", File: "pkg/graphguard/limits.go",
		Old: "a.proof.Reason == freshness.ReasonIncomparable {",
		New: "a.proof.Reason == freshness.ReasonIncomparable && false {",
	},
	{
		Name: "metered", Protection: "versions that cannot be compared are counted", File: "pkg/metrics/metrics.go",
		Old: "	incomparable.WithLabelValues(r.Group, r.Resource, origin).Inc()",
		New: "	_ = origin",
	},
	{
		Name: "delete-records", Protection: "deletions are recorded as writes", File: "pkg/transport/record.go",
		Old: "		return w.recordDelete(got)",
		New: "		return nil",
	},
	{
		Name: "available", Protection: "a DaemonSet comes back when its next pod becomes available", File: "pkg/consistencystore/view.go",
		Old: "		s.wakeWhenAvailable(owner, pods)",
		New: "		_ = s.wakeWhenAvailable",
	},
	{
		Name: "overdue", Protection: "an owner of which writes fail does not wait for what events have done to its queue's delay", File: "pkg/consistencystore/refused.go",
		Old: "if s.backsOff() && s.refusals.overdue(owner) {",
		New: "if s.backsOff() && s.refusals.overdue(owner) && false {",
	},
	{
		Name: "deletion-resent", Protection: "a deletion that the server puts off is decided again, and not sent again by client-go", File: "pkg/transport/record.go",
		Old: "after > 0 && store.Redecides(w.what(), w.object()) {",
		New: "after > 0 && false && store.Redecides(w.what(), w.object()) {",
	},
	{
		Name: "eviction-resent", Protection: "an eviction that the server puts off is judged again, and not sent again by client-go", File: "pkg/evictionguard/evictor.go",
		Old: "RESTClient().(*rest.RESTClient); ok && c != nil {",
		New: "RESTClient().(*rest.RESTClient); ok && c != nil && false {",
	},
	{
		Name: "leader-fence", Protection: "no write is sent once the leader lease has run out", File: "pkg/transport/client.go",
		Old: "			next = leaderOnly{next, at, *lease}",
		New: "			_ = leaderOnly{next, at, *lease}",
	},
	{
		Name: "rewind", Protection: "resource versions that go backward are seen by a fence", File: "pkg/rvtracker/fence.go",
		Old: "	if v.less(token.top) || s.anyAbove(token, v) {",
		New: "	if (v.less(token.top) || s.anyAbove(token, v)) && false {",
	},
	{
		Name: "relist", Protection: "all informers relist after a rewind", File: "pkg/wiring/wiring.go",
		Old: "OnRewind: func() { relist(ctx) }, OnRewindOf: w.relistOf,",
		New: "OnRewind: func() {},",
	},
	{
		Name: "relist-proof", Protection: "after a relist a controller's other caches are proven as new", File: "pkg/wiring/wiring.go",
		Old: "Prover: relistProver{w.proofs}, ",
		New: "",
	},
	{
		Name: "lost-answers", Protection: "a write whose answer is lost is waited for", File: "pkg/transport/record.go",
		Old: "	unknown := outcomeUnknown(req, resp, err)",
		New: "	unknown := outcomeUnknown(req, resp, err) && false",
	},
	{
		Name: "taint-guard", Protection: "an eviction is judged again when it is due, by the server's state", File: "pkg/consistencystore/tainteviction.go",
		Old: "	return guarded(s, guard)",
		New: "	return nil", Also: "precondition",
	},
	{
		Name: "taint-guard-lost", Protection: "an eviction is judged again when it is due, also if no relist has brought what a watch has lost", File: relistLost.File,
		Old: relistLost.Old, New: relistLost.New, Also: "taint-guard",
	},
	{
		Name: "device-taint-guard", Protection: "an eviction for a device's taint is judged again when it is due, by the server's state", File: "pkg/consistencystore/tainteviction.go",
		Old: "	return guarded(s, evictionguard.NewDeviceTaintGuard(ctx, s.evictionOptions(), evictor))",
		New: "	return nil",
	},
	{
		Name: "lease-proof", Protection: "a node is dead only by a cache of leases that is proven fresh, or by a live read", File: "pkg/nodebreaker/verify.go",
		Old: "	if n.proven(ctx, asOf) {",
		New: "	if n.proven(ctx, asOf) || true {",
	},
	{
		Name: "node-taint", Protection: "a node is proven not Ready before it gets a taint that evicts", File: controllers + "nodelifecycle/node_lifecycle_controller.go",
		Old: "if err := consistencyutil.ProveNode(ctx, nc.breaker, node.Name, condition.Status); err != nil {",
		New: "if err := consistencyutil.ProveNode(ctx, nc.breaker, node.Name, condition.Status); err != nil && false {",
	},
	{
		Name: "node-pods", Protection: "a node is proven not Ready before a pod that is seen on it is marked not Ready", File: controllers + "nodelifecycle/node_lifecycle_controller.go",
		Old: "if err := consistencyutil.ProveNode(ctx, nc.breaker, nodeName, currentReadyCondition.Status); err != nil {",
		New: "if err := consistencyutil.ProveNode(ctx, nc.breaker, nodeName, currentReadyCondition.Status); err != nil && false {",
	},
	{
		Name: "live-list", Protection: "leases are listed live while their cache is stale", File: "pkg/nodebreaker/verify.go",
		Old: "	list, err := n.liveLeases(ctx, asOf, n.enough())",
		New: "	list, err := (*leaseList)(nil), errTooSoon",
	},
	{
		Name: "renew-time", Protection: "heartbeats are compared by renewTime", File: "pkg/nodebreaker/heartbeat.go",
		Old: "	return saved == nil || saved.Spec.RenewTime == nil || !saved.Spec.RenewTime.Equal(lease.Spec.RenewTime)",
		New: "	return saved == nil || saved.ResourceVersion != lease.ResourceVersion",
	},
	{
		Name: "clock-back", Protection: "any other renewTime is a heartbeat, an earlier one too", File: "pkg/nodebreaker/heartbeat.go",
		Old: "	return saved == nil || saved.Spec.RenewTime == nil || !saved.Spec.RenewTime.Equal(lease.Spec.RenewTime)",
		New: "	return saved == nil || saved.Spec.RenewTime == nil || saved.Spec.RenewTime.Before(lease.Spec.RenewTime)",
	},
	{
		Name: "first-probe", Protection: "a node that has never reported is judged from when it was first seen", File: "pkg/nodebreaker/nodes.go",
		Old: "	if age := now.Sub(created.Time); age > maxSkew || age < -maxSkew {",
		New: "	if age := now.Sub(created.Time); age > maxSkew || age < -maxSkew || true {",
	},
	{
		Name: "detection", Protection: "a cache that lacks what the server has is not called fresh", File: "pkg/stalenessmonitor/probed.go",
		Old: "	if c.lacks() {",
		New: "	if c.lacks() && false {",
	},
	{
		Name: "age", Protection: "a published age is no less than the true one", File: "pkg/stalenessmonitor/probed.go",
		Old: "	proof, proven := c.m.opts.Prover.Known(c.gvr)\n	out := Cache{Resource: c.gvr}\n	if proven {\n		out.Proven, out.Age = proof.At, time.Since(proof.At)",
		New: "	_, proven := c.m.opts.Prover.Known(c.gvr)\n	out := Cache{Resource: c.gvr}\n	if proven {\n		out.Proven, out.Age = c.began, time.Since(c.began)",
	},
	{
		Name: "handler-lag", Protection: "it is known for how long a handler has been behind its cache", File: "pkg/stalenessmonitor/backlog.go",
		Old: "return max(0, now.Sub(b.marks[i].at))",
		New: "return max(0, b.marks[i].at.Sub(now))",
	},
	{
		Name: "watch-end", Protection: "a watch that is stalled is ended", File: "pkg/transport/watches.go",
		Old: "			\"bytes\", b.bytes.Load(), \"times\", n, \"notAgainFor\", again)\n		b.end()",
		New: "			\"bytes\", b.bytes.Load(), \"times\", n, \"notAgainFor\", again)\n		_ = b.end",
	},
	{
		Name: "quiet-proof", Protection: "a quiet cache is proven to lack nothing", File: "pkg/freshness/quietlist.go",
		Old: "	r.quiet = q\n",
		New: "	_ = q\n",
	},
	{
		Name: "stale-read", Protection: "what a deletion depends on is read from the server where its cache is shown stale", File: "pkg/consistencystore/live.go",
		Old: "			if proof.Fresh() {\n				return reply{proof: proof}",
		New: "			if proof.Outcome != freshness.Unknown {\n				return reply{proof: proof}",
	},
	{
		Name: "late-events", Protection: "where watches bring events too late for a proof, a cache is proven all the same", File: "pkg/freshness/late.go",
		Old: "	case f != nil && (f.reason == ReasonTimeout || f.reason == reasonNoBookmark):",
		New: "	case false:",
	},
	{
		Name: "throttle", Protection: "a 429 of one resource leaves the proofs of others alone", File: "pkg/freshness/admit.go",
		Old: "	if f != nil && f.overload && builtIn(t.r.gvr) {",
		New: "	if f != nil && f.reason == reasonThrottled {",
	},
}
