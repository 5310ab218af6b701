// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

// logged is of what the log has told.
var logged sync.Map

// firstOf reports whether the log has not told yet of this of a client, what being a verb or a resource.
func firstOf(kind, client, what string) bool {
	_, before := logged.LoadOrStore([3]string{kind, client, what}, nil)
	return !before
}

// countUndeclared counts a client's write if the inventory has no rule for it, and logs the first of its client and verb.
func countUndeclared(ctx context.Context, client string, info *request.RequestInfo) {
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if inventory.Lists(client, info.Verb, resource, info.Subresource) {
		return
	}
	metrics.Undeclared(client, info.Verb)
	if firstOf("undeclared", client, info.Verb) {
		klog.FromContext(ctx).Info("Sent a write that docs/coverage.md does not list: its effect on a stale cache is unknown. Later ones are only counted",
			"client", client, "verb", info.Verb, "resource", resource, "subresource", info.Subresource)
	}
}
