// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	volumeutil "k8s.io/kubernetes/pkg/volume/util"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

const (
	driver = "example.com"
	// attachTime is how long the driver takes to attach or detach a volume, reportTime how long until a kubelet says that it uses one no more.
	attachTime = 300 * time.Millisecond
	reportTime = time.Second
	// driversFinalizer is that of the driver on a VolumeAttachment.
	driversFinalizer = "external-attacher/" + driver
)

// volume is one whose pod is to be on a node.
type volume struct {
	schedule.Volume
	delay time.Duration
}

// UniqueName is what the nodes call a volume.
func UniqueName(name string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/csi/" + driver + "^" + name)
}

// MountOf is the annotation that a kubelet puts on its node for as long as it has the volume mounted.
func MountOf(name string) string { return "example.com/mount-" + name }

// startVolumes makes the volumes and their pods.
func (t *Traffic) startVolumes(s schedule.Schedule) {
	if len(s.Volumes) == 0 {
		return
	}
	t.volumes = map[string]*volume{}
	for _, n := range t.nodes {
		model.Change(t.server, model.Nodes, "", n.name, func(o *corev1.Node) {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, volumeutil.ControllerManagedAttachAnnotation, "true")
		})
	}
	for _, v := range s.Volumes {
		t.volumes[v.Name] = &volume{Volume: v}
		modes, uid := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, types.UID("claim-"+v.Name)
		t.server.Create(model.Claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: v.Name, UID: uid},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: v.Name}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}})
		t.server.Create(model.PersistentVolumes, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: Namespace, Name: v.Name, UID: uid},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: v.Name}},
		}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}})
		t.After(startTime, func() { t.makeVolumePod(v.Name) })
	}
}

// VolumeOf is the volume that a pod uses, or empty.
func VolumeOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

// makeVolumePod makes the pod of a volume on the node where it is to be, or the first one after that which it fits, unless it is there.
func (t *Traffic) makeVolumePod(name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "main", Image: "image:1"}}, TerminationGracePeriodSeconds: new(int64(30)),
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}},
	}}
	wanted := false
	t.server.Look(func(truth model.Truth) {
		v := t.volumes[name]
		if wanted = v.Node >= 0 && truth.Get(model.Pods, Namespace, name) == nil; !wanted {
			return
		}
		for i := range t.nodes {
			if n := t.nodes[(v.Node+i)%len(t.nodes)].name; pod.Spec.NodeName == "" && fits(truth, pod, n) {
				pod.Spec.NodeName = n
			}
		}
		if v.Stays { // It is made on a node without taints, as the others.
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
	})
	switch {
	case !wanted:
	case pod.Spec.NodeName == "":
		t.After(startTime, func() { t.makeVolumePod(name) })
	default:
		t.server.TryCreate(model.Pods, pod)
	}
}

// changedVolume has the driver attach and detach, kubelets unmount the volumes of pods that are deleted, and pods made again that are gone. It reports
// whether nothing more is to be done for the object.
func (t *Traffic) changedVolume(old, now model.Object) bool {
	if len(t.volumes) == 0 || t.ended.Load() {
		return false
	}
	if attachment, ok := now.(*storagev1.VolumeAttachment); ok {
		was, _ := old.(*storagev1.VolumeAttachment)
		if was == nil || was.DeletionTimestamp == nil && attachment.DeletionTimestamp != nil {
			t.After(attachTime, func() { t.drive(attachment.Name) })
		}
	}
	was, _ := old.(*corev1.Pod)
	is, _ := now.(*corev1.Pod)
	switch {
	case was != nil && is == nil && VolumeOf(was) != "":
		if was.Status.Phase != corev1.PodSucceeded {
			t.After(stopTime, func() { t.unmount(was) })
		}
		name := VolumeOf(was)
		t.After(t.volumes[name].delay, func() { t.makeVolumePod(name) })
	case is != nil && VolumeOf(is) != "" && is.DeletionTimestamp != nil:
		if was == nil || was.DeletionTimestamp == nil {
			t.After(stopTime, func() { t.unmount(is) })
		}
		return true
	}
	return false
}

// drive has the driver do what a VolumeAttachment asks for.
func (t *Traffic) drive(name string) {
	model.Change(t.server, model.Attachments, "", name, func(a *storagev1.VolumeAttachment) {
		if a.Status.Attached = a.DeletionTimestamp == nil; a.Status.Attached {
			a.Finalizers = []string{driversFinalizer}
		} else {
			a.Finalizers = nil
		}
	})
}

// mounts has the kubelet of a pod say that it uses the pod's volume, and mount it once it is told that it is attached. It reports whether the pod waits for
// no volume any more.
func (t *Traffic) mounts(pod *corev1.Pod) (done bool) {
	name := VolumeOf(pod)
	if name == "" || len(t.volumes) == 0 {
		return true
	}
	t.server.Look(func(truth model.Truth) {
		now, _ := truth.Get(model.Pods, pod.Namespace, pod.Name).(*corev1.Pod)
		done = now == nil || now.UID != pod.UID || now.DeletionTimestamp != nil
	})
	if done || t.dead(pod.Spec.NodeName) {
		return done
	}
	model.Change(t.server, model.Nodes, "", pod.Spec.NodeName, func(n *corev1.Node) {
		unique := UniqueName(name)
		switch {
		case !slices.Contains(n.Status.VolumesInUse, unique):
			n.Status.VolumesInUse = append(n.Status.VolumesInUse, unique)
		case slices.ContainsFunc(n.Status.VolumesAttached, func(a corev1.AttachedVolume) bool { return a.Name == unique }):
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, MountOf(name), string(pod.UID))
			done = true
		}
	})
	return done
}

// unmount has the kubelet stop a pod that is deleted, or gone, and unmount its volume.
func (t *Traffic) unmount(pod *corev1.Pod) {
	if t.dead(pod.Spec.NodeName) {
		t.After(renewEvery, func() { t.unmount(pod) })
		return
	}
	t.change(pod, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Conditions, p.Status.ContainerStatuses = corev1.PodSucceeded, nil, nil
	})
	name := VolumeOf(pod)
	t.After(t.volumes[name].Unmount, func() {
		if t.dead(pod.Spec.NodeName) {
			t.unmount(pod)
			return
		}
		mount := MountOf(name)
		model.Change(t.server, model.Nodes, "", pod.Spec.NodeName, func(n *corev1.Node) {
			if n.Annotations[mount] == string(pod.UID) {
				delete(n.Annotations, mount)
			}
		})
		there := false
		t.change(pod, func(*corev1.Pod) { there = true })
		if there {
			t.server.Delete(model.Pods, pod.Namespace, pod.Name, new(int64(0)))
		}
		t.After(reportTime, func() {
			model.Change(t.server, model.Nodes, "", pod.Spec.NodeName, func(n *corev1.Node) {
				if _, mounted := n.Annotations[mount]; !mounted && !t.dead(n.Name) {
					n.Status.VolumesInUse = slices.DeleteFunc(n.Status.VolumesInUse, func(v corev1.UniqueVolumeName) bool { return v == UniqueName(name) })
				}
			})
		})
	})
}

// doForVolume does what a step of work on the pod of a volume says. It reports whether the step is one.
func (t *Traffic) doForVolume(s schedule.Step) bool {
	var grace *int64
	switch s.Action {
	case schedule.MovePod:
	case schedule.SeizePod:
		grace = new(int64(0))
	default:
		return false
	}
	if t.volumes[s.Target] != nil {
		t.server.Look(func(model.Truth) { t.volumes[s.Target].Node, t.volumes[s.Target].delay = s.N, s.Delay })
		t.server.Delete(model.Pods, Namespace, s.Target, grace)
		t.After(s.Delay, func() { t.makeVolumePod(s.Target) })
	}
	return true
}
