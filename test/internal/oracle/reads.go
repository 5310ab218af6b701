// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Reads are when a kube-controller-manager asked an apiserver what its caches should have told it.
type Reads struct {
	// Live are GETs and LISTs of nodes, of their leases, and of what device taints come from.
	Live []time.Time
	// Probes are the requests of package freshness, which have a budget of their own.
	Probes []time.Time
}

// liveResources are those that node lifecycle and the taint evictions may read live.
var liveResources = map[string]bool{
	"leases": true, "nodes": true, "resourceslices": true, "devicetaintrules": true, "resourceclaims": true,
}

// ReadsIn picks the reads that were asked in [from, to), refused ones too. What fills an informer is not one
// of them, nor is a read that the apiserver may answer from its own cache, nor leader election, nor the read
// after a write that met a conflict, which every arm needs to write again.
func ReadsIn(events []controlplane.AuditEvent, from, to time.Time) Reads {
	var out Reads
	conflicts := map[string]int{}
	for i := range events {
		e := &events[i]
		at := e.RequestReceivedTimestamp
		if e.Stage == "ResponseComplete" && e.Verb == "update" && e.ResponseStatus.Code == http.StatusConflict {
			conflicts[readOf(e)]++
		}
		if e.Stage != "ResponseComplete" || !strings.HasPrefix(e.UserAgent, "kube-controller-manager/") || at.Before(from) || !at.Before(to) {
			continue
		}
		if probes(e) {
			out.Probes = append(out.Probes, at)
			continue
		}
		if e.Verb != "get" && e.Verb != "list" || !liveResources[e.ObjectRef.Resource] || e.ObjectRef.Namespace == metav1.NamespaceSystem ||
			strings.Contains(e.UserAgent, "informers") || strings.Contains(e.RequestURI, "resourceVersion=0") {
			continue
		}
		if e.Verb == "get" && conflicts[readOf(e)] > 0 {
			conflicts[readOf(e)]--
			continue
		}
		out.Live = append(out.Live, at)
	}
	return out
}

// readOf says who reads what in the first place when it is to be written again.
func readOf(e *controlplane.AuditEvent) string {
	return strings.Join([]string{e.User.Username, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name}, "/")
}

// Busiest returns the largest number of times within one window.
func Busiest(times []time.Time, window time.Duration) int {
	most, first := 0, 0
	for i, at := range times { // the audit log is in order but for requests under way together
		for at.Sub(times[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
