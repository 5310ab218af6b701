// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// PageTimeout bounds the request for a page of a list, and PageWait the wait for the budget before it.
	PageTimeout = 15 * time.Second
	PageWait    = time.Minute
	// RefusedHold is how long a list that was refused is not tried again, and the longest that the server
	// can ask for.
	RefusedHold = time.Minute
)

// Forbidden reports whether the process lacks the right to a read.
func Forbidden(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// RetryAfter is how long the server asks to wait before the next try, or 0.
func RetryAfter(err error) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return time.Duration(seconds) * time.Second
	}
	return 0
}
