// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Request is one kind of request of a kube-controller-manager.
type Request struct {
	Verb string
	// Resource is followed by the subresource, as in deployments/status.
	Resource string
	// Namespace is empty for a request that spans all of them.
	Namespace string
	// Account is the service account of the controller, as in replicaset-controller.
	Account string
	// Probe says that package freshness made it.
	Probe bool
}

// Requests counts requests by their kind.
type Requests map[Request]int

// Sum adds up the kinds that match.
func (r Requests) Sum(match func(Request) bool) (n int) {
	for request, count := range r {
		if match(request) {
			n += count
		}
	}
	return n
}

// Writes says whether the request changes something.
func (r Request) Writes() bool {
	return !r.Probe && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch"
}

// RequestsIn counts what a kube-controller-manager asked in [from, to), with refused requests. A watch counts when
// it begins. What fills an informer does not count, nor does leader election: both depend on time and not on work.
func RequestsIn(events []controlplane.AuditEvent, from, to time.Time) Requests {
	out := Requests{}
	for i := range events {
		e := &events[i]
		at := e.RequestReceivedTimestamp
		if at.Before(from) || !at.Before(to) || !counts(e) {
			continue
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		out[Request{e.Verb, resource, e.ObjectRef.Namespace, e.ServiceAccount(), probes(e)}]++
	}
	return out
}

// WritesIn returns when each write of a kube-controller-manager in a namespace was answered, in order. Events do not count.
func WritesIn(events []controlplane.AuditEvent, namespace string) (out []time.Time) {
	for _, e := range Writes(events) {
		if e.ObjectRef.Namespace == namespace && counts(&e) && e.ObjectRef.Resource != "events" {
			out = append(out, e.StageTimestamp)
		}
	}
	return out
}

// LastWrite returns the last of WritesIn, or the zero time.
func LastWrite(events []controlplane.AuditEvent, namespace string) (last time.Time) {
	if all := WritesIn(events, namespace); len(all) > 0 {
		last = all[len(all)-1]
	}
	return last
}

// Reactions returns for each status of a pod in a namespace that somebody but a kube-controller-manager wrote how long
// after it the kube-controller-manager wrote the status of an object of a resource. A status of a pod that another
// one follows before that is left out.
func Reactions(events []controlplane.AuditEvent, namespace, resource string) (out []time.Duration) {
	var changed time.Time
	for _, e := range Writes(events) {
		switch {
		case e.ObjectRef.Namespace != namespace || e.ObjectRef.Subresource != "status" || !succeeded(&e):
		case e.ObjectRef.Resource == "pods" && !counts(&e):
			changed = e.StageTimestamp
		case e.ObjectRef.Resource == resource && counts(&e) && !changed.IsZero():
			out = append(out, e.StageTimestamp.Sub(changed))
			changed = time.Time{}
		}
	}
	return out
}

func counts(e *controlplane.AuditEvent) bool {
	stage := "ResponseComplete"
	if e.Verb == "watch" {
		stage = "ResponseStarted"
	}
	return e.Stage == stage && strings.HasPrefix(e.UserAgent, "kube-controller-manager/") &&
		!strings.Contains(e.UserAgent, "informers") &&
		(e.ObjectRef.Resource != "leases" || e.ObjectRef.Namespace != metav1.NamespaceSystem)
}

// probes says whether package freshness made the request.
func probes(e *controlplane.AuditEvent) bool { return strings.Contains(e.UserAgent, " freshness") }
