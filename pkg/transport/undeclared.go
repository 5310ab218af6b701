// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

// inventoried is a transport that counts the writes that the inventory has no rule for. It sends them all.
type inventoried struct {
	next   http.RoundTripper
	at     endpoint
	client string
}

// logged is of what the log has told.
var logged sync.Map

// firstOf reports whether the log has not told yet of this of a client, what being a verb or a resource.
func firstOf(kind, client, what string) bool {
	_, before := logged.LoadOrStore([3]string{kind, client, what}, nil)
	return !before
}

// RoundTrip implements http.RoundTripper.
func (i inventoried) RoundTrip(req *http.Request) (*http.Response, error) {
	if mutating.Has(req.Method) {
		i.count(req)
	}
	return i.next.RoundTrip(req)
}

// count counts the write if it has no rule, and logs the first of its client and verb.
func (i inventoried) count(req *http.Request) {
	info := i.at.resource(req)
	if info == nil {
		return
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	if len(inventory.Rules(i.client, info.Verb, resource, info.Subresource)) > 0 {
		return
	}
	metrics.Undeclared(i.client, info.Verb)
	if firstOf("undeclared", i.client, info.Verb) {
		klog.FromContext(req.Context()).Info("Sent a write that docs/coverage.md does not list: its effect on a stale cache is unknown. Later ones are only counted",
			"client", i.client, "verb", info.Verb, "resource", resource, "subresource", info.Subresource)
	}
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (i inventoried) WrappedRoundTripper() http.RoundTripper { return i.next }
