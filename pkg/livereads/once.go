// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import "k8s.io/client-go/rest"

// Once begins a read that is not sent again if the server is busy, since each sending counts. It
// returns nil for the client of a fake, which has no requests.
func Once(c rest.Interface) *rest.Request {
	if r, ok := c.(*rest.RESTClient); ok && r != nil {
		return r.Get().MaxRetries(0)
	}
	return nil
}
