// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// The rules by which the controller of resource claims is judged. That a pod needs a claim no more does not change again, so that all are judged by
// the server's state when a request arrives.
const (
	// Released: a claim lost the reservation for a pod that needs it.
	Released = "reservation"
	// Deallocated: a claim lost its allocation, or the finalizer that keeps it, while it was reserved for a pod that needs it.
	Deallocated = "allocation"
	// Unclaimed: the claim of a pod that needs it was deleted.
	Unclaimed = "claim"
	// TwoClaims: a pod got a second claim for one of its entries.
	TwoClaims = "two claims"
)

const (
	// released is for how much longer a claim may be kept: a proof is up to 2 s old.
	released = 2 * time.Second
	// perClaim requests of one kind, besides a quarter of stock's.
	perClaim = 10
	// perConflict status updates, besides twice stock's, under a fault: what is refused as the cache of claims is stale is tried again with upstream's backoff,
	// which begins anew after a wait for a proof.
	perConflict = 30
)

// claims is how the claims of a schedule stand.
type claims struct {
	claimers []schedule.Claimer
	// judged says that the request is the controller's that the server carries out.
	judged        bool
	lacking, kept map[string]time.Time
}

// ClaimNames are the pods and the shared claims of a schedule.
func ClaimNames(s schedule.Schedule) (names []string) {
	for _, c := range s.Claimers {
		names = append(names, c.Name)
		for _, n := range c.Shared {
			names = append(names, traffic.SharedClaim(n))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// byClaims says that the controller of resource claims sent the request.
func byClaims(r *model.Request) bool { return strings.Contains(r.Agent, model.ClaimClient) }

// needs returns the pod of the name and UID if it is there and needs its claims.
func needs(truth model.Truth, namespace, name string, uid types.UID) *corev1.Pod {
	pod, ok := truth.Get(model.Pods, namespace, name).(*corev1.Pod)
	if !ok || pod.UID != uid || hasEnded(pod) || pod.DeletionTimestamp != nil && pod.Spec.NodeName == "" {
		return nil
	}
	return pod
}

// users are the pods that need a claim, of those that it is reserved for.
func users(truth model.Truth, claim *resourcev1.ResourceClaim) (pods []*corev1.Pod) {
	for _, c := range claim.Status.ReservedFor {
		if pod := needs(truth, claim.Namespace, c.Name, c.UID); pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// judgeClaims notes how the claims stand after a change, and judges one by their controller.
func (j *Judge) judgeClaims(truth model.Truth, r *model.Resource, old, now model.Object, at time.Time) {
	c := &j.claims
	if len(c.claimers) == 0 || r != model.Pods && r != model.ResourceClaims {
		return
	}
	if c.judged && r == model.ResourceClaims {
		was, _ := old.(*resourcev1.ResourceClaim)
		is, _ := now.(*resourcev1.ResourceClaim)
		j.judgeClaim(truth, was, is, at.Sub(j.began).Round(time.Millisecond))
	}
	lacking, kept := map[string]bool{}, map[string]bool{}
	for _, o := range truth.List(model.ResourceClaims) {
		claim, name := o.(*resourcev1.ResourceClaim), o.GetName()
		unused := len(users(truth, claim)) < len(claim.Status.ReservedFor)
		if ref := metav1.GetControllerOfNoCopy(claim); ref != nil {
			name = ref.Name
			unused = unused || needs(truth, claim.Namespace, ref.Name, ref.UID) == nil
		}
		kept[name] = kept[name] || unused
	}
	for _, claimer := range c.claimers {
		if pod, ok := truth.Get(model.Pods, traffic.Namespace, claimer.Name).(*corev1.Pod); ok && pod.DeletionTimestamp == nil && !hasEnded(pod) {
			for i, claim := range traffic.ClaimsOf(truth, pod) {
				own := pod.Spec.ResourceClaims[i].ResourceClaimName == nil
				waits := claim != nil && claim.DeletionTimestamp == nil && claim.Status.Allocation != nil && pod.Spec.NodeName != "" && !traffic.ReservedFor(claim, pod.UID)
				lacking[claimer.Name] = lacking[claimer.Name] || claim == nil && own || waits
			}
		}
		turn(c.lacking, j.record.Lacking, claimer.Name, lacking[claimer.Name], at, j.began)
		turn(c.kept, j.record.Kept, claimer.Name, kept[claimer.Name], at, j.began)
		for _, n := range claimer.Shared {
			turn(c.kept, j.record.Kept, traffic.SharedClaim(n), kept[traffic.SharedClaim(n)], at, j.began)
		}
	}
}

// judgeClaim judges a change of a claim by its controller.
func (j *Judge) judgeClaim(truth model.Truth, was, is *resourcev1.ResourceClaim, late time.Duration) {
	if was == nil {
		ref := metav1.GetControllerOfNoCopy(is)
		for _, o := range truth.List(model.ResourceClaims) {
			if other := o.(*resourcev1.ResourceClaim); other.UID != is.UID && ref != nil && metav1.GetControllerOfNoCopy(other) != nil && metav1.GetControllerOfNoCopy(other).UID == ref.UID && other.DeletionTimestamp == nil &&
				other.Annotations[resourcev1.PodResourceClaimAnnotation] == is.Annotations[resourcev1.PodResourceClaimAnnotation] {
				j.unjustified(TwoClaims, "at %s %s beside %s", late, is.Name, other.Name)
				return
			}
		}
		return
	}
	used := users(truth, was)
	for _, pod := range used {
		if is != nil && !traffic.ReservedFor(is, pod.UID) {
			j.unjustified(Released, "at %s %s of pod %s, which is %s", late, was.Name, pod.Name, pod.Status.Phase)
		}
	}
	if len(used) > 0 && (is == nil || was.Status.Allocation != nil && is.Status.Allocation == nil || len(is.Finalizers) < len(was.Finalizers)) {
		j.unjustified(Deallocated, "at %s %s, which pod %s uses", late, was.Name, used[0].Name)
	}
	ref := metav1.GetControllerOfNoCopy(was)
	if begins := is != nil && is.DeletionTimestamp != nil && was.DeletionTimestamp == nil; ref != nil && (begins || is == nil && was.DeletionTimestamp == nil) && needs(truth, was.Namespace, ref.Name, ref.UID) != nil {
		j.unjustified(Unclaimed, "at %s %s of pod %s is deleted, which needs it", late, was.Name, ref.Name)
	}
}

// digest is how the pods and their claims are.
func (c *claims) digest(truth model.Truth) string {
	var b strings.Builder
	for _, claimer := range c.claimers {
		pod, ok := truth.Get(model.Pods, traffic.Namespace, claimer.Name).(*corev1.Pod)
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "%s %s:", pod.Name, pod.Status.Phase)
		for i, claim := range traffic.ClaimsOf(truth, pod) {
			fmt.Fprintf(&b, " %s", pod.Spec.ResourceClaims[i].Name)
			if claim != nil {
				fmt.Fprintf(&b, " allocated %t, reserved %t, for %d in all", claim.Status.Allocation != nil, traffic.ReservedFor(claim, pod.UID), len(claim.Status.ReservedFor))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// endClaims ends what is open.
func (j *Judge) endClaims(at time.Time) {
	for _, name := range ClaimNames(schedule.Schedule{Claimers: j.claims.claimers}) {
		leave(j.claims.lacking, j.record.Lacking, name, at, j.began)
		leave(j.claims.kept, j.record.Kept, name, at, j.began)
	}
}

// claimExcused says that a wrong action is one that no proof prevents, of which ours does no more than stock: where an event was lost. A second
// claim is made by upstream where an answer was lost, and chance decides which are.
func claimExcused(s schedule.Schedule, v Violation, stock, ours Record) bool {
	switch v.Rule {
	case Released, Deallocated, Unclaimed:
		return s.Has(schedule.LoseEvent) && ours.broke(v.Rule) <= stock.broke(v.Rule)
	case TwoClaims:
		return s.Has(schedule.LostAnswer) || ours.broke(v.Rule) <= stock.broke(v.Rule)
	}
	return false
}

// compareClaims says where ours keeps claims for longer than stock, has pods lack them for longer, asks more of the server for it, or leaves them otherwise.
func compareClaims(s schedule.Schedule, stock, ours Record) (out []Violation) {
	add := func(rule, format string, args ...any) {
		out = append(out, Violation{rule, fmt.Sprintf(format, args...)})
	}
	// What was taken away by harm stays away, and no new pod gets a claim that is to be deleted once others have ended.
	fault, open := s.TouchedClaims(), len(stock.Unjustified) > 0 || s.Has(schedule.DropClaim)
	for _, name := range ClaimNames(s) {
		for _, c := range []struct {
			rule        string
			ours, stock []Span
			mean, most  time.Duration
		}{
			{"lacks a claim", ours.Lacking[name], stock.Lacking[name], moreMean, moreMost},
			{"claim kept", ours.Kept[name], stock.Kept[name], released, released + moreMost},
		} {
			ourMean, ourMost, ourAll, ourOpen := sum(c.ours)
			mean, most, all, stockOpen := sum(c.stock)
			limit := c.most
			if fault > 0 {
				limit = fault + afterFault
			}
			open = open || ourOpen || stockOpen
			switch {
			case ourOpen && !stockOpen && ourMost > most+limit:
				add("end", "%s: %s not ended for the last %s, stock's is", name, c.rule, last(c.ours).For)
			case stockOpen:
			case fault > 0 && ourAll > all*5/4+limit:
				add(c.rule, "%s: %s in %d times, stock %s in %d", name, ourAll, len(c.ours), all, len(c.stock))
			case fault > 0:
			case ourMean > mean+c.mean && ourAll > all+c.mean:
				add(c.rule, "%s: mean %s of %d, stock %s of %d", name, ourMean, len(c.ours), mean, len(c.stock))
			case ourMost > most+limit:
				add(c.rule, "%s: most %s, stock %s", name, ourMost, most)
			}
		}
	}
	for what, n := range ours.Claiming {
		allowed := stock.Claiming[what]*5/4 + perClaim
		switch {
		case what == "list pods":
			allowed += int(fault / time.Second) // Live reads while a cache is stale, of which there is one a second.
		case what == "update resourceclaims/status" && fault > 0:
			allowed = 2*stock.Claiming[what] + perConflict
			// What waits for a proof may be due when writes fail, and stock's done before.
			for _, c := range s.Claimers {
				allowed += (c.Own + len(c.Shared)) * doublings(s, schedule.FailWrites, "resourceclaims", queues.first)
			}
		}
		if n > allowed {
			add("requests", "of the controller of claims: %d times %s, stock %d", n, what, stock.Claiming[what])
		}
	}
	if ours.Claims != stock.Claims && !open {
		add("end state", "claims not as stock leaves them:\n%s\nstock:\n%s", ours.Claims, stock.Claims)
	}
	return out
}
