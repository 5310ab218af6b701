// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// widgets are of a resource of which nothing is known but metadata.
var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

type metaChange = func(*metav1.ObjectMeta)

func (h *history) thing(event watch.EventType, resource schema.GroupResource, name string, changes ...metaChange) {
	h.add(resource, event, &metav1.PartialObjectMetadata{ObjectMeta: metaNamed(name, changes...)})
}

func metaNamed(name string, changes ...metaChange) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}
	for _, c := range changes {
		c(&m)
	}
	return m
}

func ownedBy(name string) metaChange {
	return func(m *metav1.ObjectMeta) {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Kind: "Widget", Name: name, UID: types.UID(name), BlockOwnerDeletion: new(true)})
	}
}

func controlledBy(kind, name string) metaChange {
	return func(m *metav1.ObjectMeta) {
		m.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}}
	}
}

func finalizer(names ...string) metaChange {
	return func(m *metav1.ObjectMeta) { m.Finalizers = names }
}
func goes(m *metav1.ObjectMeta)          { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
func inNamespace(name string) metaChange { return func(m *metav1.ObjectMeta) { m.Namespace = name } }

func of(resource schema.GroupResource) func(*controlplane.AuditEvent) {
	return func(e *controlplane.AuditEvent) { e.ObjectRef.APIGroup = resource.Group }
}

// request is one of a controller for the last change.
func (h *history) request(user, verb string, resource schema.GroupResource, name string, change ...func(*controlplane.AuditEvent)) {
	h.asked(user, verb, resource.Resource, name, moment, append(change, of(resource))...)
}

// found are the rules that the history breaks, with what was found.
func (h *history) found(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, v := range Unjustified(truth.Replay(h.events), h.writes, Deaths{}) {
		require.Empty(t, out[v.Rule], "twice")
		out[v.Rule] = v.Detail
	}
	return out
}

func requireWrong(t *testing.T, h *history, rule, detail string) {
	t.Helper()
	found := h.found(t)
	delete(found, RuleUnjustified) // that of pods is judged elsewhere
	if detail == "" {
		require.Empty(t, found)
		return
	}
	require.Len(t, found, 1)
	require.Contains(t, found[rule], detail)
}

// What the garbage collector deletes, of whatever resource, had an owner and has none.
func TestCollected(t *testing.T) {
	const by = account + GarbageCollector
	collect := func(h *history, by string, changes ...metaChange) {
		h.thing(watch.Deleted, widgets, "d", changes...)
		h.request(by, "delete", widgets, "d")
	}
	for name, tt := range map[string]struct {
		history func(h *history)
		wrong   string
	}{
		"its owner is gone": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("o"))
			h.idle(5)
			h.thing(watch.Deleted, widgets, "o")
			collect(h, by, ownedBy("o"))
		}, ""},
		"its owner is there": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("o"))
			h.idle(5)
			collect(h, by, ownedBy("o"))
		}, "Widget o is there, by generic-garbage-collector"},
		"somebody else deletes it": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("o"))
			h.idle(5)
			collect(h, "admin", ownedBy("o"))
		}, ""},
		"one of two owners is there": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("p"), ownedBy("o"))
			h.idle(5)
			collect(h, by, ownedBy("p"), ownedBy("o"))
		}, "Widget o is there"},
		"its owner waits for it": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("o"))
			h.thing(watch.Modified, widgets, "o", goes, finalizer(foregroundFinalizer))
			h.idle(5)
			collect(h, by, ownedBy("o"))
		}, ""},
		"its owner goes, and does not wait": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("o"))
			h.thing(watch.Modified, widgets, "o", goes, finalizer("another"))
			h.idle(5)
			collect(h, by, ownedBy("o"))
		}, "Widget o is there"},
		"it got that owner just now": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("p"))
			h.idle(5)
			h.thing(watch.Modified, widgets, "d", ownedBy("o"))
			collect(h, by, ownedBy("o"))
		}, ""},
		"it lost its owner just now": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("p"))
			h.idle(5)
			h.thing(watch.Modified, widgets, "d")
			collect(h, by)
		}, ""},
		"it has none": {func(h *history) {
			h.thing(watch.Added, widgets, "d")
			h.idle(5)
			collect(h, by)
		}, "it has had no owner"},
		"its owner is in another namespace": {func(h *history) {
			h.thing(watch.Added, widgets, "e", inNamespace("other"))
			h.thing(watch.Added, widgets, "d", ownedBy("e"))
			h.idle(5)
			collect(h, by, ownedBy("e"))
		}, ""},
		"nothing is known of its owner": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("unknown"))
			h.idle(5)
			collect(h, by, ownedBy("unknown"))
		}, ""},
		"resource versions went backward": {func(h *history) {
			h.thing(watch.Added, widgets, "d", ownedBy("o"))
			h.idle(5)
			collect(h, by, ownedBy("o"))
			h.rv -= 3
			h.thing(watch.Added, widgets, "later")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.thing(watch.Added, widgets, "o")
			tt.history(h)
			requireWrong(t, h, RuleOwned, tt.wrong)
		})
	}
}

func TestNamespaceThatStays(t *testing.T) {
	for name, tt := range map[string]struct {
		namespace []metaChange
		by, wrong string
	}{
		"it stays":       {nil, account + NamespaceController, "its namespace is not being deleted"},
		"it is deleted":  {[]metaChange{goes}, account + NamespaceController, ""},
		"somebody else":  {nil, "admin", ""},
		"another's rule": {nil, account + "any-controller", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.thing(watch.Added, namespaces, "default", append(tt.namespace, inNamespace(""))...)
			h.thing(watch.Added, widgets, "d")
			h.thing(watch.Deleted, widgets, "d")
			h.request(tt.by, "deletecollection", widgets, "")
			requireWrong(t, h, RuleNamespaceStays, tt.wrong)
		})
	}
}

func (h *history) job(event watch.EventType, name string, change ...func(*batchv1.Job)) {
	j := &batchv1.Job{ObjectMeta: metaNamed(name)}
	for _, c := range change {
		c(j)
	}
	h.add(truth.Jobs, event, j)
}

func jobIs(condition batchv1.JobConditionType) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue})
	}
}

func (h *history) cronJob(event watch.EventType, change ...func(*batchv1.CronJob)) {
	c := &batchv1.CronJob{ObjectMeta: metaNamed("cron")}
	for _, change := range change {
		change(c)
	}
	h.add(truth.CronJobs, event, c)
}

func TestJobsDeleted(t *testing.T) {
	ofCron := func(j *batchv1.Job) { controlledBy("CronJob", "cron")(&j.ObjectMeta) }
	replaces := func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = batchv1.ReplaceConcurrent }
	for name, tt := range map[string]struct {
		job      []func(*batchv1.Job)
		cronJob  []func(*batchv1.CronJob)
		by, want string
	}{
		"one that has finished, by its time": {[]func(*batchv1.Job){jobIs(batchv1.JobComplete)}, nil, ttlAfterFinished, ""},
		"one that runs, by its time":         {nil, nil, ttlAfterFinished, "it has not finished"},
		"one that has finished":              {[]func(*batchv1.Job){ofCron, jobIs(batchv1.JobFailed)}, nil, CronJobController, ""},
		"one that runs":                      {[]func(*batchv1.Job){ofCron}, nil, CronJobController, "and is not to be replaced"},
		"one that is replaced":               {[]func(*batchv1.Job){ofCron}, []func(*batchv1.CronJob){replaces}, CronJobController, ""},
		"one of nobody":                      {nil, nil, CronJobController, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.cronJob(watch.Added, tt.cronJob...)
			h.job(watch.Added, "job", tt.job...)
			h.idle(5)
			h.job(watch.Deleted, "job", tt.job...)
			h.request(account+tt.by, "delete", truth.Jobs, "job")
			requireWrong(t, h, RuleJobRuns, tt.want)
		})
	}
}

// A finalizer goes only when nothing needs it, whether it is the last one or not.
func TestFinalizers(t *testing.T) {
	claims, volumes := truth.PersistentVolumeClaims, truth.PersistentVolumes
	claim := func(h *history, event watch.EventType, changes ...metaChange) {
		h.add(claims, event, &corev1.PersistentVolumeClaim{ObjectMeta: metaNamed("x", changes...)})
	}
	volume := func(h *history, event watch.EventType, phase corev1.PersistentVolumePhase, changes ...metaChange) {
		h.add(volumes, event, &corev1.PersistentVolume{ObjectMeta: metaNamed("x", changes...), Status: corev1.PersistentVolumeStatus{Phase: phase},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "claim"}}})
	}
	cidr := func(h *history, event watch.EventType, name, text string, changes ...metaChange) {
		h.add(truth.ServiceCIDRs, event, &networkingv1.ServiceCIDR{ObjectMeta: metaNamed(name, append(changes, inNamespace(""))...),
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{text}}})
	}
	address := func(h *history, event watch.EventType) {
		h.add(truth.IPAddresses, event, &networkingv1.IPAddress{ObjectMeta: metaNamed("10.0.0.7", inNamespace(""))})
	}
	using := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "x"}}}}
	}
	const (
		pvc   = "kubernetes.io/pvc-protection"
		pv    = "kubernetes.io/pv-protection"
		vac   = "kubernetes.io/vac-protection"
		group = "scheduling.k8s.io/podgroup-protection"
		cidrs = "networking.k8s.io/service-cidr-finalizer"
		gc    = account + GarbageCollector
		byPVC = account + "pvc-protection-controller"
		byPV  = account + "pv-protection-controller"
		byVAC = account + "volumeattributesclass-protection-controller"
		byPG  = account + "podgroup-protection-controller"
		byCD  = account + "service-cidrs-controller"
	)
	classes := schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattributesclasses"}
	groups := schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
	// taken has a widget that goes lose its finalizer, and with it go.
	taken := func(h *history, by, name string) {
		h.thing(watch.Modified, widgets, "x", goes, finalizer(name))
		h.asked("admin", "delete", "widgets", "x", moment, of(widgets))
		h.idle(5)
		h.thing(watch.Deleted, widgets, "x", goes, finalizer(name))
		h.request(by, "patch", widgets, "x")
	}
	for name, tt := range map[string]struct {
		history func(h *history)
		wrong   string
	}{
		"orphans are left": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			taken(h, gc, orphanFinalizer)
		}, "orphan: widgets default/d has it as its owner"},
		"orphans have no owner any more": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			h.thing(watch.Modified, widgets, "d")
			taken(h, gc, orphanFinalizer)
		}, ""},
		"orphans that are being deleted": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", ownedBy("x"), goes)
			taken(h, gc, orphanFinalizer)
		}, ""},
		"an orphan that came just now": {func(h *history) {
			h.thing(watch.Added, widgets, "x", finalizer(orphanFinalizer))
			h.thing(watch.Modified, widgets, "x", finalizer(orphanFinalizer), goes)
			h.idle(5)
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			h.thing(watch.Modified, widgets, "x", finalizer("another"), goes)
			h.request(gc, "patch", widgets, "x")
		}, ""},
		"somebody else takes it off": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			taken(h, "admin", orphanFinalizer)
		}, ""},
		"somebody else may have taken it off": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			taken(h, gc, orphanFinalizer)
			h.request("admin", "patch", widgets, "x")
		}, ""},
		"somebody else changed it before": {func(h *history) {
			h.thing(watch.Added, widgets, "x", finalizer(orphanFinalizer))
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			h.thing(watch.Modified, widgets, "x", finalizer(orphanFinalizer), inNamespace("default"))
			h.request("admin", "patch", widgets, "x")
			h.idle(5)
			h.thing(watch.Modified, widgets, "x")
			h.request(gc, "patch", widgets, "x")
		}, "orphan"},
		"somebody else deletes it with another policy": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			taken(h, gc, orphanFinalizer)
			h.request("admin", "delete", widgets, "x")
		}, ""},
		"not the last one, and it stays": {func(h *history) {
			h.thing(watch.Added, widgets, "x", finalizer(orphanFinalizer, "another"), goes)
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			h.idle(5)
			h.thing(watch.Modified, widgets, "x", finalizer("another"), goes)
			h.request(gc, "patch", widgets, "x")
		}, "orphan"},
		"what blocks a deletion is there": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", ownedBy("x"), goes)
			taken(h, gc, foregroundFinalizer)
		}, "foregroundDeletion: widgets default/d has it as its owner"},
		"what does not block a deletion is there": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", controlledBy("Widget", "x"))
			taken(h, gc, foregroundFinalizer)
		}, ""},
		"what blocked a deletion is gone": {func(h *history) {
			h.thing(watch.Added, widgets, "x")
			h.thing(watch.Added, widgets, "d", ownedBy("x"))
			h.thing(watch.Deleted, widgets, "d", ownedBy("x"))
			taken(h, gc, foregroundFinalizer)
		}, ""},
		"a pod uses the claim": {func(h *history) {
			claim(h, watch.Added, finalizer(pvc), goes)
			h.pod(watch.Added, "a", "n", using)
			h.idle(5)
			claim(h, watch.Deleted, finalizer(pvc), goes)
			h.request(byPVC, "update", claims, "x")
		}, pvc + ": pod a uses it"},
		"a pod that uses the claim is on no node": {func(h *history) {
			claim(h, watch.Added, finalizer(pvc), goes)
			h.pod(watch.Added, "a", "", using)
			h.idle(5)
			claim(h, watch.Deleted, finalizer(pvc), goes)
			h.request(byPVC, "update", claims, "x")
		}, ""},
		"a pod uses the claim since just now": {func(h *history) {
			claim(h, watch.Added, finalizer(pvc), goes)
			h.idle(5)
			h.pod(watch.Added, "a", "n", using)
			claim(h, watch.Deleted, finalizer(pvc), goes)
			h.request(byPVC, "update", claims, "x")
		}, ""},
		"the volume is bound": {func(h *history) {
			volume(h, watch.Added, corev1.VolumeBound, finalizer(pv), goes)
			h.idle(5)
			volume(h, watch.Deleted, corev1.VolumeBound, finalizer(pv), goes)
			h.request(byPV, "update", volumes, "x")
		}, pv + ": it is bound to default/claim"},
		"the volume is released": {func(h *history) {
			volume(h, watch.Added, corev1.VolumeReleased, finalizer(pv), goes)
			volume(h, watch.Deleted, corev1.VolumeReleased, finalizer(pv), goes)
			h.request(byPV, "update", volumes, "x")
		}, ""},
		"a claim uses the class": {func(h *history) {
			h.thing(watch.Added, classes, "x", finalizer(vac), goes)
			h.add(claims, watch.Added, &corev1.PersistentVolumeClaim{ObjectMeta: metaNamed("c"), Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: new("x")}})
			h.idle(5)
			h.thing(watch.Deleted, classes, "x", finalizer(vac), goes)
			h.request(byVAC, "update", classes, "x")
		}, vac + ": persistentvolumeclaims default/c uses it"},
		"a claim uses another class": {func(h *history) {
			h.thing(watch.Added, classes, "x", finalizer(vac), goes)
			h.add(claims, watch.Added, &corev1.PersistentVolumeClaim{ObjectMeta: metaNamed("c"), Spec: corev1.PersistentVolumeClaimSpec{VolumeAttributesClassName: new("y")}})
			h.idle(5)
			h.thing(watch.Deleted, classes, "x", finalizer(vac), goes)
			h.request(byVAC, "update", classes, "x")
		}, ""},
		"a pod is of the PodGroup": {func(h *history) {
			h.thing(watch.Added, groups, "x", finalizer(group), goes)
			h.pod(watch.Added, "a", "", func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("x")} })
			h.idle(5)
			h.thing(watch.Deleted, groups, "x", finalizer(group), goes)
			h.request(byPG, "update", groups, "x")
		}, group + ": pod a uses it"},
		"a pod of the PodGroup has ended": {func(h *history) {
			h.thing(watch.Added, groups, "x", finalizer(group), goes)
			h.pod(watch.Added, "a", "", func(p *corev1.Pod) {
				p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("x")}
				p.Status.Phase = corev1.PodSucceeded
			})
			h.idle(5)
			h.thing(watch.Deleted, groups, "x", finalizer(group), goes)
			h.request(byPG, "update", groups, "x")
		}, ""},
		"an address is of the range": {func(h *history) {
			cidr(h, watch.Added, "x", "10.0.0.0/24", finalizer(cidrs), goes)
			address(h, watch.Added)
			h.idle(5)
			cidr(h, watch.Deleted, "x", "10.0.0.0/24", finalizer(cidrs), goes)
			h.request(byCD, "patch", truth.ServiceCIDRs, "x", core, of(truth.ServiceCIDRs))
		}, cidrs + ": address 10.0.0.7 is of it"},
		"an address is of another range, too": {func(h *history) {
			cidr(h, watch.Added, "x", "10.0.0.0/24", finalizer(cidrs), goes)
			cidr(h, watch.Added, "y", "10.0.0.0/16")
			address(h, watch.Added)
			h.idle(5)
			cidr(h, watch.Deleted, "x", "10.0.0.0/24", finalizer(cidrs), goes)
			h.request(byCD, "patch", truth.ServiceCIDRs, "x", core, of(truth.ServiceCIDRs))
		}, ""},
		"the address has gone": {func(h *history) {
			cidr(h, watch.Added, "x", "10.0.0.0/24", finalizer(cidrs), goes)
			address(h, watch.Added)
			h.idle(5)
			address(h, watch.Deleted)
			cidr(h, watch.Deleted, "x", "10.0.0.0/24", finalizer(cidrs), goes)
			h.request(byCD, "patch", truth.ServiceCIDRs, "x", core, of(truth.ServiceCIDRs))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			tt.history(h)
			requireWrong(t, h, RuleFinalizer, tt.wrong)
		})
	}
}

// A pod of a Job keeps its finalizer until the Job's status says that its end is being counted.
func TestJobTracking(t *testing.T) {
	tracked := func(p *corev1.Pod) {
		controlledBy("Job", "job")(&p.ObjectMeta)
		p.Finalizers = []string{batchv1.JobTrackingFinalizer}
	}
	free := func(p *corev1.Pod) { p.Finalizers = nil }
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	counted := func(j *batchv1.Job) {
		j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Failed: []types.UID{"a"}}
	}
	for name, tt := range map[string]struct {
		job    []func(*batchv1.Job)
		pod    []func(*corev1.Pod)
		after  func(h *history)
		gone   bool
		wrong  string
		byUser bool
	}{
		"it runs":              {wrong: "it runs, and so does Job job"},
		"it runs, a user":      {byUser: true},
		"it is deleted next":   {after: func(h *history) { h.request(account+JobController, "delete", truth.Pods, "a") }},
		"its end is counted":   {pod: []func(*corev1.Pod){failed}, job: []func(*batchv1.Job){counted}},
		"its end is not":       {pod: []func(*corev1.Pod){failed}, wrong: "its end is not counted by Job job"},
		"it is being deleted":  {pod: []func(*corev1.Pod){deleting}, wrong: "its end is not counted by Job job"},
		"the Job has finished": {job: []func(*batchv1.Job){jobIs(batchv1.JobFailed)}},
		"the Job will fail":    {job: []func(*batchv1.Job){jobIs(batchv1.JobFailureTarget)}},
		"the Job is suspended": {job: []func(*batchv1.Job){jobIs(batchv1.JobSuspended)}, wrong: "it runs"},
		"the Job is gone":      {gone: true},
		"which count is not known": {pod: []func(*corev1.Pod){failed}, job: []func(*batchv1.Job){func(j *batchv1.Job) {
			j.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.job(watch.Added, "job", tt.job...)
			h.pod(watch.Added, "a", "n", append([]func(*corev1.Pod){tracked}, tt.pod...)...)
			if tt.gone {
				h.job(watch.Deleted, "job")
			}
			h.idle(5)
			h.pod(watch.Modified, "a", "n", append(append([]func(*corev1.Pod){tracked}, tt.pod...), free)...)
			by := account + JobController
			if tt.byUser {
				by = "admin"
			}
			h.request(by, "patch", truth.Pods, "a")
			if tt.after != nil {
				h.rv++
				tt.after(h)
			}
			requireWrong(t, h, RuleFinalizer, tt.wrong)
		})
	}
}

func TestJobStatus(t *testing.T) {
	ofJob := func(phase corev1.PodPhase, change ...func(*corev1.Pod)) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			controlledBy("Job", "job")(&p.ObjectMeta)
			p.Status.Phase = phase
			for _, c := range change {
				c(p)
			}
		}
	}
	counts := func(succeeded, failed int32) func(*batchv1.Job) {
		return func(j *batchv1.Job) { j.Status.Succeeded, j.Status.Failed = succeeded, failed }
	}
	asks := func(n int32) func(*batchv1.Job) { return func(j *batchv1.Job) { j.Spec.Completions = &n } }
	complete := jobIs(batchv1.JobComplete)
	for name, tt := range map[string]struct {
		pods  func(h *history)
		job   []func(*batchv1.Job)
		wrong string
	}{
		"as many as have succeeded": {func(h *history) { h.pod(watch.Added, "a", "n", ofJob(corev1.PodSucceeded)) }, []func(*batchv1.Job){counts(1, 0), complete}, ""},
		"more than have succeeded":  {func(h *history) { h.pod(watch.Added, "a", "n", ofJob(corev1.PodSucceeded)) }, []func(*batchv1.Job){counts(2, 0)}, "2 pods are said to have succeeded, and 1 have"},
		"one that is gone has failed": {func(h *history) {
			h.pod(watch.Added, "a", "n", ofJob(corev1.PodRunning))
			h.pod(watch.Deleted, "a", "n", ofJob(corev1.PodRunning))
		}, []func(*batchv1.Job){counts(0, 1)}, ""},
		"more than have failed":                  {func(h *history) { h.pod(watch.Added, "a", "n", ofJob(corev1.PodRunning)) }, []func(*batchv1.Job){counts(0, 1)}, "1 pods are said to have failed, and 0 have ended"},
		"all are said to fail with it":           {func(h *history) { h.pod(watch.Added, "a", "n", ofJob(corev1.PodRunning)) }, []func(*batchv1.Job){counts(0, 1), jobIs(batchv1.JobFailureTarget)}, ""},
		"it has finished while a pod runs":       {func(h *history) { h.pod(watch.Added, "a", "n", ofJob(corev1.PodRunning)) }, []func(*batchv1.Job){jobIs(batchv1.JobFailed)}, "it has finished, and pod a runs"},
		"it has finished while a pod goes":       {func(h *history) { h.pod(watch.Added, "a", "n", ofJob(corev1.PodRunning, deleting)) }, []func(*batchv1.Job){jobIs(batchv1.JobFailed)}, ""},
		"it has finished while another's runs":   {func(h *history) { h.pod(watch.Added, "a", "n") }, []func(*batchv1.Job){jobIs(batchv1.JobFailed)}, ""},
		"it is Complete with fewer":              {func(h *history) { h.pod(watch.Added, "a", "n", ofJob(corev1.PodSucceeded)) }, []func(*batchv1.Job){asks(2), counts(1, 0), complete}, "it is Complete, and 1 of 2 pods have succeeded"},
		"it is Complete by its success policy":   {func(h *history) { h.pod(watch.Added, "a", "n", ofJob(corev1.PodSucceeded)) }, []func(*batchv1.Job){asks(2), counts(1, 0), complete, func(j *batchv1.Job) { j.Spec.SuccessPolicy = &batchv1.SuccessPolicy{} }}, ""},
		"it is Complete and asks for none":       {func(*history) {}, []func(*batchv1.Job){asks(0), complete}, ""},
		"it is Complete without a pod's success": {func(*history) {}, []func(*batchv1.Job){complete}, "it is Complete, and 0 of 1 pods have succeeded"},
	} {
		for _, by := range []string{account + JobController, "admin"} {
			t.Run(name+", "+by, func(t *testing.T) {
				h := &history{}
				h.job(watch.Added, "job")
				tt.pods(h)
				h.idle(5)
				h.job(watch.Modified, "job", tt.job...)
				h.request(by, "update", truth.Jobs, "job", subresource("status"))
				wrong := tt.wrong
				if by == "admin" {
					wrong = ""
				}
				requireWrong(t, h, RuleJobStatus, wrong)
			})
		}
	}
}

func TestCronJobStatus(t *testing.T) {
	at := time.Unix(600, 0)
	ran := func(c *batchv1.CronJob) { c.Status.LastScheduleTime = &metav1.Time{Time: at} }
	succeeded := func(c *batchv1.CronJob) { c.Status.LastSuccessfulTime = &metav1.Time{Time: at} }
	active := func(c *batchv1.CronJob) {
		c.Status.Active = []corev1.ObjectReference{{Name: "cron-10", UID: "cron-10"}}
	}
	ofCron := func(j *batchv1.Job) { controlledBy("CronJob", "cron")(&j.ObjectMeta) }
	completed := func(j *batchv1.Job) {
		jobIs(batchv1.JobComplete)(j)
		j.Status.CompletionTime = &metav1.Time{Time: at}
	}
	for name, tt := range map[string]struct {
		before, after []func(*batchv1.CronJob)
		jobs          func(h *history)
		wrong         string
	}{
		"it has run":                   {nil, []func(*batchv1.CronJob){ran}, func(h *history) { h.job(watch.Added, "cron-10", ofCron) }, ""},
		"it has run a Job of nobody":   {nil, []func(*batchv1.CronJob){ran}, func(h *history) { h.job(watch.Added, "cron-10") }, "there was no Job cron-10"},
		"it has run another minute":    {nil, []func(*batchv1.CronJob){ran}, func(h *history) { h.job(watch.Added, "cron-9", ofCron) }, "there was no Job cron-10"},
		"it had run before":            {[]func(*batchv1.CronJob){ran}, []func(*batchv1.CronJob){ran, active}, func(*history) {}, ""},
		"it has succeeded":             {nil, []func(*batchv1.CronJob){succeeded}, func(h *history) { h.job(watch.Added, "cron-10", ofCron, completed) }, ""},
		"it has not succeeded":         {nil, []func(*batchv1.CronJob){succeeded}, func(h *history) { h.job(watch.Added, "cron-10", ofCron) }, "no Job of it completed then"},
		"active no more, and runs":     {[]func(*batchv1.CronJob){active}, nil, func(h *history) { h.job(watch.Added, "cron-10", ofCron) }, "Job cron-10 is said to be active no more, and runs"},
		"active no more, and finished": {[]func(*batchv1.CronJob){active}, nil, func(h *history) { h.job(watch.Added, "cron-10", ofCron, completed) }, ""},
		"active no more, and gone": {[]func(*batchv1.CronJob){active}, nil, func(h *history) {
			h.job(watch.Added, "cron-10", ofCron)
			h.job(watch.Deleted, "cron-10", ofCron)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{}
			h.cronJob(watch.Added, tt.before...)
			tt.jobs(h)
			h.idle(5)
			h.cronJob(watch.Modified, tt.after...)
			h.request(account+CronJobController, "update", truth.CronJobs, "cron", subresource("status"))
			requireWrong(t, h, RuleCronJobStatus, tt.wrong)
		})
	}
}
