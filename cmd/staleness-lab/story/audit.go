// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// fromKCM reports whether a kube-controller-manager made the request, as any of its controllers.
func fromKCM(e controlplane.AuditEvent) bool {
	return strings.HasPrefix(e.UserAgent, "kube-controller-manager/")
}

// Requests are a kube-controller-manager's requests of some time.
type Requests struct {
	// NodeLeaseGets and NodeLeaseLists are live reads of the nodes' leases.
	NodeLeaseGets, NodeLeaseLists int
	// Fences are the reads by which caches are proven fresh: one item, and a budget of their own.
	Fences int
	// ElectionRenewals show that it was alive and leading.
	ElectionRenewals int
	// Total is without watches.
	Total int
}

// NodeLeaseReads are all live reads of the nodes' leases.
func (n Requests) NodeLeaseReads() int { return n.NodeLeaseGets + n.NodeLeaseLists }

// CountRequests counts what an apiserver's audit log says it was asked in [from, to).
func CountRequests(auditLog string, from, to time.Time) (Requests, error) {
	var n Requests
	_, err := controlplane.ReadAudit(auditLog, 0, func(e controlplane.AuditEvent) {
		at := e.RequestReceivedTimestamp
		if !fromKCM(e) || e.Verb == "watch" || at.Before(from) || !at.Before(to) {
			return
		}
		n.Total++
		o := e.ObjectRef
		switch {
		case strings.Contains(e.UserAgent, " freshness"):
			n.Fences++
		case o.Resource != "leases", strings.Contains(e.UserAgent, "informers"):
		case o.Namespace == "kube-system" && e.Verb == "update":
			n.ElectionRenewals++
		case o.Namespace == "kube-system":
		case e.Verb == "get":
			n.NodeLeaseGets++
		case e.Verb == "list":
			n.NodeLeaseLists++
		}
	})
	return n, err
}
