// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults are the troubles between kube-controller-manager and its server.
package faults

import (
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
)

// Faults are those of one run.
type Faults struct {
	server *model.Server

	mu  sync.Mutex
	now []schedule.Step // under way
	n   int
	// flaky is how many writes of an owner there were while every Nth fails.
	flaky map[model.Owner]int
}

// New returns none.
func New(server *model.Server) *Faults { return &Faults{server: server, flaky: map[model.Owner]int{}} }

// Do begins what a step says, and has after end it. It reports whether the step is a fault.
func (f *Faults) Do(s schedule.Step, after func(time.Duration, func())) bool {
	switch s.Action {
	case schedule.Refuse, schedule.Ending, schedule.Webhook, schedule.FailWrites, schedule.Flaky, schedule.TimeOut, schedule.PutOff, schedule.Broken, schedule.Throttle, schedule.SlowWrites, schedule.SlowReads, schedule.LostAnswer, schedule.Unprovable:
		f.mu.Lock()
		f.now = append(f.now, s)
		f.mu.Unlock()
		after(s.For, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if i := slices.Index(f.now, s); i >= 0 {
				f.now = slices.Delete(f.now, i, i+1)
			}
		})
	case schedule.Down:
		f.server.Down(true)
		after(s.For, func() { f.server.Down(false) })
	case schedule.Hold:
		f.server.Hold(byName(s.Target), true)
		after(s.For, func() { f.server.Hold(byName(s.Target), false) })
	case schedule.Lag:
		f.server.Lag(byName(s.Target), true)
		after(s.For, func() { f.server.Lag(byName(s.Target), false) })
	case schedule.Late:
		f.server.Late(byName(s.Target), s.Delay)
		after(s.For, func() { f.server.Late(byName(s.Target), 0) })
	case schedule.Expire:
		f.server.Expire(byName(s.Target))
	case schedule.LoseEvent:
		f.server.Drop(byName(s.Target), true)
		after(s.For, func() { f.server.Drop(byName(s.Target), false) })
	default:
		return false
	}
	return true
}

func byName(name string) *model.Resource {
	for _, r := range model.All() {
		if r.GroupVersionResource.Resource == name {
			return r
		}
	}
	panic("no such resource: " + name)
}

// Fate decides about a request.
func (f *Faults) Fate(r *model.Request) (fate model.Fate) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.now {
		hit := r.GroupVersionResource.Resource == s.Target
		switch s.Action {
		case schedule.Refuse:
			if createsFor(r, s.Target) {
				fate.Refusal = model.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "pods are forbidden: exceeded quota", 0)
			}
		case schedule.Ending:
			if createsFor(r, s.Target) {
				fate.Refusal = model.RefuseFor(corev1.NamespaceTerminatingCause, "unable to create new content in namespace default because it is being terminated")
			}
		case schedule.Webhook:
			if createsFor(r, s.Target) {
				fate.Before, fate.Refusal = s.Delay, webhookDown()
			}
		case schedule.Flaky:
			if hit && r.Write() {
				if f.flaky[r.Owner]++; f.flaky[r.Owner]%s.N == 0 {
					fate.Refusal = webhookDown()
				}
			}
		case schedule.FailWrites:
			if hit && r.Write() {
				fate.Refusal = failure(s.N)
			}
		case schedule.TimeOut:
			if hit && r.Write() {
				fate.Refusal = model.Refuse(http.StatusInternalServerError, metav1.StatusReasonServerTimeout, "etcdserver: request timed out", s.N)
			}
		case schedule.PutOff:
			if hit && r.Write() {
				fate.Refusal = tooMany(s.N)
			}
		case schedule.Broken:
			if hit && (r.Verb == "list" || r.Verb == "watch") {
				fate.Refusal = model.Refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "storage is (re)initializing", s.N)
			}
		case schedule.Throttle:
			if hit {
				fate.Refusal = tooMany(s.N)
			}
		case schedule.Unprovable:
			if model.Probe(r) || hit && (r.Verb == "get" || r.Verb == "list") {
				fate.Refusal = model.Refuse(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no proofs today", 0)
			}
		case schedule.SlowWrites:
			if hit && r.Write() {
				fate.Before = s.Delay
			}
		case schedule.SlowReads:
			if hit && !r.Write() && r.Verb != "watch" {
				fate.Before, fate.After = s.Delay/2, s.Delay/2
			}
		case schedule.LostAnswer:
			if f.n++; hit && r.Write() && f.n%2 == 0 {
				fate.Lost = true
			}
		}
	}
	return fate
}

// reasons are those of a status.
var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusConflict: metav1.StatusReasonConflict, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
	http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable, http.StatusGatewayTimeout: metav1.StatusReasonTimeout,
}

// failure is the answer to a write with this status, or, if it is 0, that of a webhook that is down.
func failure(status int) error {
	if status == 0 {
		return webhookDown()
	}
	return model.Refuse(status, reasons[status], "not today", 0)
}

func tooMany(after int) error {
	return model.Refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests", after)
}

func webhookDown() error {
	return model.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "all.example.com"`, 0)
}

// createsFor says that a request makes a pod of the owner, a Job of the CronJob, or a claim of the pod.
func createsFor(r *model.Request, owner string) bool {
	return (r.Resource == model.Pods || r.Resource == model.Jobs || r.Resource == model.ResourceClaims) && r.Verb == "create" && r.Subresource == "" && r.Owner.Name == owner
}
