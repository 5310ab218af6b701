// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/kubernetes/pkg/controller/volume/attachdetach"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// Detached is the rule that a volume is not detached from a node that has it mounted, is ready, and not out of service.
const Detached = "detachment"

const (
	// polled is for how much longer a volume may be attached, or lacking, on average: the CSI plugin looks for what the driver has done every half second, and
	// what has failed is tried again after half a second at least.
	polled = 500 * time.Millisecond
	// perRead is for how long of a fault a node may be read live once more: while no detachment may be forced, others are tried, with upstream's backoff, which
	// begins anew with each attachment that is tried meanwhile.
	perRead = 5 * time.Second
	// perVolume requests of one kind, besides a quarter of stock's.
	perVolume = 10
)

// timers are upstream's, of which there are no flags.
var timers = attachdetach.DefaultTimerConfig

// mount is a volume and a node.
type mount struct{ volume, node string }

// volumes is how the volumes of a schedule stand.
type volumes struct {
	volumes []schedule.Volume
	// mounted is since when a node has had a volume mounted and was well all the time.
	mounted        map[mount]time.Time
	lacking, spare map[string]time.Time
	slow           map[string]chain // requests about a node
}

// byAttacher says that the attach/detach controller sent the request.
func byAttacher(r *model.Request) bool { return strings.Contains(r.Agent, model.AttachClient) }

// judgeDetachment judges the deletion of a VolumeAttachment by the server's state, at any time since it was decided: before what the controller asked of the
// node, one after the other.
func (j *Judge) judgeDetachment(truth model.Truth, r *model.Request) {
	a, _ := truth.Get(model.Attachments, "", r.Name).(*storagev1.VolumeAttachment)
	if r.Resource != model.Attachments || r.Verb != "delete" || a == nil || a.DeletionTimestamp != nil {
		return
	}
	since := r.Sent
	if c := j.volumes.slow[a.Spec.NodeName]; r.Sent.Sub(c.end) < slack {
		since = c.start
	}
	m := mount{*a.Spec.Source.PersistentVolumeName, a.Spec.NodeName}
	from, used := j.volumes.mounted[m]
	unused, isUnused := j.volumes.spare[m.volume]
	if node, ok := truth.Get(model.Nodes, "", m.node).(*corev1.Node); ok && isMounted(node, m.volume) && !isOut(node) && (used || !isUnused || time.Since(unused) < timers.ReconcilerMaxWaitForUnmountDuration) {
		j.record.Robbed[m.volume] = true
	}
	if used && from.Before(since.Add(-j.decided-provenBefore)) {
		j.unjustified(Detached, "at %s %s of %s, which has had it mounted and been well for %s", r.Arrived.Sub(j.began).Round(time.Millisecond), m.volume, m.node, time.Since(from).Round(time.Millisecond))
	}
}

// observeAttacher notes a request of the attach/detach controller.
func (j *Judge) observeAttacher(r *model.Request) {
	if r.Resource == model.Nodes {
		j.volumes.slow[r.Name] = j.volumes.slow[r.Name].with(r)
	}
	j.record.Attaching[what(r)]++
}

// judgeVolumes notes how the volumes stand after a change.
func (j *Judge) judgeVolumes(truth model.Truth, r *model.Resource, now model.Object, at time.Time) {
	v := &j.volumes
	if len(v.volumes) == 0 || r != model.Pods && r != model.Nodes && r != model.Attachments {
		return
	}
	if node, ok := now.(*corev1.Node); ok {
		for _, volume := range v.volumes {
			m := mount{volume.Name, node.Name}
			if _, was := v.mounted[m]; !isMounted(node, volume.Name) || !isReady(node) || isOut(node) {
				delete(v.mounted, m)
			} else if !was {
				v.mounted[m] = at
			}
		}
	}
	attached := map[mount]bool{}
	for _, o := range truth.List(model.Attachments) {
		if a := o.(*storagev1.VolumeAttachment); a.DeletionTimestamp == nil {
			attached[mount{*a.Spec.Source.PersistentVolumeName, a.Spec.NodeName}] = a.Status.Attached
		}
	}
	for _, volume := range v.volumes {
		lacking, spare := false, false
		pod, _ := truth.Get(model.Pods, traffic.Namespace, volume.Name).(*corev1.Pod)
		if pod != nil && (pod.DeletionTimestamp != nil && pod.Status.Phase == corev1.PodPending || hasEnded(pod)) {
			pod = nil
		}
		if pod != nil && pod.DeletionTimestamp == nil {
			node, _ := truth.Get(model.Nodes, "", pod.Spec.NodeName).(*corev1.Node)
			lacking = !attached[mount{volume.Name, pod.Spec.NodeName}] || node != nil && !tellsOf(node, volume.Name)
		}
		for m := range attached {
			spare = spare || m.volume == volume.Name && (pod == nil || pod.Spec.NodeName != m.node)
		}
		turn(v.lacking, j.record.Detached, volume.Name, lacking, at, j.began)
		turn(v.spare, j.record.Attached, volume.Name, spare, at, j.began)
	}
}

// isOut says that somebody says that a node is out of service, perhaps before it is known not to be ready.
func isOut(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// isMounted says that a node has a volume mounted.
func isMounted(n *corev1.Node, volume string) bool {
	_, mounted := n.Annotations[traffic.MountOf(volume)]
	return mounted
}

// tellsOf says that a node is told that a volume is attached to it.
func tellsOf(n *corev1.Node, volume string) bool {
	return slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == traffic.UniqueName(volume) })
}

// digest is how the volumes are. On which node is chance where one was not ready when its pod was made.
func (v *volumes) digest(truth model.Truth) string {
	var b strings.Builder
	for _, volume := range v.volumes {
		on := ""
		if pod, ok := truth.Get(model.Pods, traffic.Namespace, volume.Name).(*corev1.Pod); ok {
			on = pod.Spec.NodeName
			fmt.Fprintf(&b, "pod %s %s\n", pod.Name, pod.Status.Phase)
		}
		for _, o := range truth.List(model.Nodes) {
			if tellsOf(o.(*corev1.Node), volume.Name) {
				fmt.Fprintf(&b, "a node is told of %s, the pod's %t\n", volume.Name, o.GetName() == on)
			}
		}
		for _, o := range truth.List(model.Attachments) {
			if a := o.(*storagev1.VolumeAttachment); *a.Spec.Source.PersistentVolumeName == volume.Name {
				fmt.Fprintf(&b, "%s attached %t, to the pod's node %t\n", volume.Name, a.Status.Attached, a.Spec.NodeName == on)
			}
		}
	}
	return b.String()
}

// endVolumes ends what is open.
func (j *Judge) endVolumes(at time.Time) {
	for _, volume := range j.volumes.volumes {
		leave(j.volumes.lacking, j.record.Detached, volume.Name, at, j.began)
		leave(j.volumes.spare, j.record.Attached, volume.Name, at, j.began)
	}
}

// detachmentExcused says that a wrong detachment is one that no proof prevents, of which ours does no more than stock: where an event was lost.
func detachmentExcused(s schedule.Schedule, v Violation, stock, ours Record) bool {
	return v.Rule == Detached && s.Has(schedule.LoseEvent) && ours.broke(v.Rule) <= stock.broke(v.Rule)
}

// compareVolumes says where ours has a pod wait for its volume for longer than stock, keeps a volume attached for longer, asks more of the server for it, or
// leaves volumes otherwise.
func compareVolumes(s schedule.Schedule, stock, ours Record) (out []Violation) {
	add := func(rule, format string, args ...any) {
		out = append(out, Violation{rule, fmt.Sprintf(format, args...)})
	}
	fault, open := s.TouchedVolumes(), false
	for _, volume := range s.Volumes {
		if stock.Robbed[volume.Name] {
			open = true // What it took from one pod the next had sooner.
			continue
		}
		for _, c := range []struct {
			rule        string
			ours, stock []Span
		}{
			{"lacks a volume", ours.Detached[volume.Name], stock.Detached[volume.Name]},
			{"volume kept attached", ours.Attached[volume.Name], stock.Attached[volume.Name]},
		} {
			ourMean, ourMost, ourAll, ourOpen := sum(c.ours)
			mean, most, all, stockOpen := sum(c.stock)
			limit := moreMost
			if fault > 0 {
				limit = fault + afterFault
			}
			open = open || ourOpen || stockOpen
			switch {
			case ourOpen && !stockOpen && ourMost > most+limit:
				add("end", "%s: %s not ended for the last %s, stock's is", volume.Name, c.rule, last(c.ours).For)
			case stockOpen:
			case fault > 0 && ourAll > all*5/4+limit:
				add(c.rule, "%s: %s in %d times, stock %s in %d", volume.Name, ourAll, len(c.ours), all, len(c.stock))
			case fault > 0:
			case ourMean > mean+polled && ourAll > all+polled:
				add(c.rule, "%s: mean %s of %d, stock %s of %d", volume.Name, ourMean, len(c.ours), mean, len(c.stock))
			case ourMost > most+limit:
				add(c.rule, "%s: most %s, stock %s", volume.Name, ourMost, most)
			}
		}
	}
	for what, n := range ours.Attaching {
		allowed := stock.Attaching[what]*5/4 + perVolume
		if what == "patch nodes/status" {
			allowed += int(s.TouchedNodes() / timers.ReconcilerLoopPeriod) // What fails is tried again in each pass, and chance decides which answers are lost.
		}
		if what == "get nodes" {
			allowed += int(fault / perRead)
		}
		if n > allowed {
			add("requests", "of the attach/detach controller: %d times %s, stock %d", n, what, stock.Attaching[what])
		}
	}
	if ours.Volumes != stock.Volumes && !open {
		add("end state", "volumes not as stock leaves them:\n%s\nstock:\n%s", ours.Volumes, stock.Volumes)
	}
	return out
}
