// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// RuleUndeclared: a client of a kube-controller-manager wrote what package inventory has no rule for, so that nobody has asked what it does on a stale cache.
const RuleUndeclared = "write without a rule"

// Undeclared returns the writes of kube-controller-managers that package inventory has no rule for, whichever of their clients made them.
func Undeclared(writes []controlplane.AuditEvent) []Violation {
	var out []Violation
	for i := range writes {
		e := &writes[i]
		resource := schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}
		clients := clientsOf(e)
		if len(clients) == 0 || slices.ContainsFunc(clients, func(client string) bool {
			return inventory.Lists(client, e.Verb, resource, e.ObjectRef.Subresource)
		}) {
			continue
		}
		out = append(out, Violation{
			Oracle: "I", Rule: RuleUndeclared, Object: object(e), Time: e.StageTimestamp,
			Detail: fmt.Sprintf("%s: %s %s%s", clients[0], e.Verb, resource, slash(e.ObjectRef.Subresource)),
		})
	}
	return out
}

// clientsOf are the names under which package inventory may have a request's client: its service account, or, as the process's own user, the process
// and the name at the end of its user agent, as in "kube-controller-manager/v1.37.0 (linux/amd64) kubernetes/0123456/tokens-controller".
func clientsOf(e *controlplane.AuditEvent) []string {
	if account := e.ServiceAccount(); account != "" {
		return []string{account}
	}
	if e.User.Username != "system:"+KubeControllerManager {
		return nil
	}
	return []string{inventory.Process, e.UserAgent[strings.LastIndex(e.UserAgent, "/")+1:]}
}
