// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// RuleUndeclared: a controller wrote what package inventory has no rule for, so that nobody has asked what it does on a stale cache.
const RuleUndeclared = "write without a rule"

// Undeclared returns the writes of controllers that package inventory has no rule for.
func Undeclared(writes []controlplane.AuditEvent) []Violation {
	var out []Violation
	for i := range writes {
		e := &writes[i]
		resource := schema.GroupResource{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource}
		if e.ServiceAccount() == "" || len(inventory.Rules(e.ServiceAccount(), e.Verb, resource, e.ObjectRef.Subresource)) > 0 {
			continue
		}
		out = append(out, Violation{
			Oracle: "I", Rule: RuleUndeclared, Object: object(e), Time: e.StageTimestamp,
			Detail: fmt.Sprintf("%s: %s %s%s", e.ServiceAccount(), e.Verb, resource, slash(e.ObjectRef.Subresource)),
		})
	}
	return out
}
