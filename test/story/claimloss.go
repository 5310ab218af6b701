// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

const (
	claimReplicas = 3
	// claimSettled is for how long the StatefulSet's status must not change before its events are held.
	claimSettled = time.Second
	// claimProof is longer than a proof from before the hold can count (2 s), claimHold how long the hold lasts: time to
	// delete a pod and its claim.
	claimProof = 3 * time.Second
	claimHold  = 8 * time.Second
	claimLimit = time.Minute
)

var claimLoss = Story{
	ID: "c",
	Title: "a StatefulSet whose claims go with its pods is scaled down and, while its last pod terminates, up again; " +
		"the statefulsets watch is held back from then on",
	Correct: "A correct KCM deletes no pod and no volume claim that the StatefulSet calls for, and deletes them " +
		"as ever when it is scaled down for good.",
	Hurts: []controlplane.Arm{controlplane.ArmU0, controlplane.ArmU1},
	Run:   func(ctx context.Context, o Options) (Result, error) { return RunClaimLoss(ctx, o) },
	Settings: func(Options) string {
		return fmt.Sprintf("1 node, replicas %d, then 1, then %d; whenScaled Delete; statefulsets watch held for %d s; KCM flags default",
			claimReplicas, claimReplicas, int(claimHold.Seconds()))
	},
}

// ClaimLossResult is what happened to a StatefulSet that was scaled down and up again.
type ClaimLossResult struct {
	KCM
	// PodLost and ClaimLost: the pod web-1 and its claim were called for all the time but a second, and deleted.
	PodLost, ClaimLost bool
	// Held is what the proxy kept back, and for how long.
	Held    faultproxy.Tally
	HeldFor time.Duration
	// Recovered says that all pods were Ready within the limit, RecoveredAfter the release.
	Recovered      bool
	RecoveredAfter time.Duration
	// LaterGone of LaterClaims claims were deleted when it was scaled down for good.
	LaterClaims, LaterGone int
}

// Figures implements Result.
func (r *ClaimLossResult) Figures() []Figure {
	recovered := "no"
	if r.Recovered {
		recovered = fmt.Sprintf("%.1f s", r.RecoveredAfter.Seconds())
	}
	return []Figure{
		{Name: "volume claims deleted that are called for", Value: ratio(count(r.ClaimLost), 1), Outcome: judge(r.ClaimLost)},
		{Name: "pods deleted that are called for", Value: ratio(count(r.PodLost), 1), Outcome: judge(r.PodLost)},
		{Name: "all pods Ready after the release", Value: recovered, Outcome: judge(!r.Recovered)},
		{Name: "claims deleted later by a real scale-down", Value: ratio(r.LaterGone, r.LaterClaims), Outcome: judge(r.LaterGone < r.LaterClaims)},
		{Name: "fault: StatefulSet events held, for", Value: fmt.Sprintf("%d, %.0f s", r.Held.Frames, r.HeldFor.Seconds())},
	}
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// RunClaimLoss runs the story.
func RunClaimLoss(ctx context.Context, o Options) (_ *ClaimLossResult, err error) {
	scene, err := o.begin(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, scene.end(ctx)) }()
	c := &claimRun{scene: scene, result: &ClaimLossResult{KCM: scene.subject, LaterClaims: claimReplicas - 1}}
	for _, step := range []func(context.Context) error{c.create, c.scaleDown, c.fault, c.recover, c.later, c.rig.SameKCM} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return c.result, nil
}

// claimRun is the story under way.
type claimRun struct {
	*scene
	pod, claim types.UID // of web-1, before the fault
	result     *ClaimLossResult
}

// create starts the StatefulSet and remembers the pod and the claim that must survive.
func (c *claimRun) create(ctx context.Context) error {
	c.say("pods start", "%d of StatefulSet %s", claimReplicas, claimSet)
	if err := c.createClaimSet(ctx, claimReplicas); err != nil {
		return err
	}
	if err := faultrig.Wait(ctx, claimLimit, "the pods of the StatefulSet", func() (bool, error) { return c.ready(ctx) }); err != nil {
		return err
	}
	if err := c.truth.Sync(ctx); err != nil {
		return err
	}
	pod, podKnown := c.truth.Find(truth.Pods, metav1.NamespaceDefault, claimSet+"-1", truth.Latest)
	claim, claimKnown := c.truth.Find(truth.PersistentVolumeClaims, metav1.NamespaceDefault, claimOf(1), truth.Latest)
	if !podKnown || !claimKnown {
		return fmt.Errorf("pod %s-1 or its claim is gone before the fault", claimSet)
	}
	c.pod, c.claim = pod.UID, claim.UID
	return nil
}

// scaleDown scales to one while the last pod cannot go, and waits until the controller has done all it can.
func (c *claimRun) scaleDown(ctx context.Context) error {
	c.say("scaled down to 1", "%s-2 terminates slowly", claimSet)
	if err := c.holdPod(ctx, claimSet+"-2", true); err != nil {
		return err
	}
	if err := c.scale(ctx, 1); err != nil {
		return err
	}
	last, since := "", time.Now()
	return faultrig.Wait(ctx, claimLimit, "the controller to scale down as far as it can", func() (bool, error) {
		pod, err := c.rig.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, claimSet+"-2", metav1.GetOptions{})
		if err != nil || pod.DeletionTimestamp == nil {
			return false, err
		}
		claim, err := c.rig.Client.CoreV1().PersistentVolumeClaims(metav1.NamespaceDefault).Get(ctx, claimOf(1), metav1.GetOptions{})
		if err != nil || len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].UID != c.pod {
			return false, err
		}
		set, err := c.rig.Client.AppsV1().StatefulSets(metav1.NamespaceDefault).Get(ctx, claimSet, metav1.GetOptions{})
		if err != nil || set.Status.ObservedGeneration != set.Generation {
			return false, err
		}
		if set.ResourceVersion != last {
			last, since = set.ResourceVersion, time.Now()
		}
		if time.Since(since) < claimSettled {
			return false, nil
		}
		return c.rig.Told(appsv1.Resource("statefulsets"), last)
	})
}

// fault scales up behind the controller's back, and lets the last pod go.
func (c *claimRun) fault(ctx context.Context) error {
	hold, err := c.rig.Proxy.Inject(faultproxy.Target{Resource: appsv1.Resource("statefulsets")}, faultproxy.Hold{})
	if err != nil {
		return err
	}
	defer hold.Clear()
	if err := c.scale(ctx, claimReplicas); err != nil {
		return err
	}
	c.say("scaled up again, statefulsets watch held", "")
	begin := time.Now()
	if err := pause(ctx, begin.Add(claimProof)); err != nil {
		return err
	}
	if err := c.holdPod(ctx, claimSet+"-2", false); err != nil {
		return err
	}
	if err := pause(ctx, begin.Add(claimHold)); err != nil {
		return err
	}
	stats := hold.Stats()
	if stats.Touched() == 0 || stats.Released.Frames > 0 {
		return fmt.Errorf("the fault was not injected: %d StatefulSet events held, %d let through", stats.Held.Frames, stats.Released.Frames)
	}
	c.result.Held, c.result.HeldFor = stats.Held, time.Since(stats.Since)
	return nil
}

// recover waits until all pods are back, and looks whether the pod and its claim are those from before.
func (c *claimRun) recover(ctx context.Context) error {
	c.say("statefulsets watch released", "")
	begin := time.Now()
	err := faultrig.Wait(ctx, claimLimit, "the pods to be back", func() (bool, error) { return c.ready(ctx) })
	if err != nil && ctx.Err() != nil {
		return err
	}
	c.result.Recovered, c.result.RecoveredAfter = err == nil, time.Since(begin)
	if err := c.truth.Sync(ctx); err != nil {
		return err
	}
	c.result.PodLost, c.result.ClaimLost = c.lost(truth.Pods, c.pod), c.lost(truth.PersistentVolumeClaims, c.claim)
	return nil
}

// lost says that an object has been deleted.
func (c *claimRun) lost(resource schema.GroupResource, uid types.UID) bool {
	_, there := c.truth.At(resource, truth.Latest)[uid]
	return !there
}

// later shows whether claims still go with their pods when they should: doing nothing would be no cure.
func (c *claimRun) later(ctx context.Context) error {
	c.say("scaled down for good", "")
	if err := c.scale(ctx, 1); err != nil {
		return err
	}
	err := faultrig.Wait(ctx, claimLimit, "the claims to go", func() (bool, error) {
		c.result.LaterGone = claimReplicas - len(c.truth.At(truth.PersistentVolumeClaims, truth.Latest))
		return c.result.LaterGone == c.result.LaterClaims, nil
	})
	if err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}

func (c *claimRun) ready(ctx context.Context) (bool, error) {
	set, err := c.rig.Client.AppsV1().StatefulSets(metav1.NamespaceDefault).Get(ctx, claimSet, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return set.Status.ObservedGeneration == set.Generation && set.Status.ReadyReplicas == claimReplicas && set.Status.Replicas == claimReplicas, nil
}

// pause lets time pass in which the controller can act.
func pause(ctx context.Context, until time.Time) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Until(until)):
		return nil
	}
}
