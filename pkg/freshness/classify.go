// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// errorHold is how long a resource is not asked again after an error without a
	// Retry-After, so that callers that meet a broken server one after another do not
	// each send a request.
	errorHold = time.Second
	// refusedHold is the same for what only an operator can change.
	refusedHold = 10 * time.Second
	// maxHold bounds what a server can ask for.
	maxHold = time.Minute
)

// classify maps the error of a request to a reason. It is never evidence of anything.
func classify(err error, headers *http.Header) *failure {
	f := &failure{reason: reasonOf(err), err: err}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		f.retryAfter = time.Duration(seconds) * time.Second
	} else if headers != nil {
		if seconds, err := strconv.Atoi(headers.Get("Retry-After")); err == nil && seconds > 0 {
			f.retryAfter = time.Duration(seconds) * time.Second
		}
	}
	switch {
	case f.retryAfter > maxHold:
		f.retryAfter = maxHold
	case f.retryAfter > 0:
	case f.reason == ReasonForbidden, f.reason == ReasonNotFound:
		f.retryAfter = refusedHold
	default:
		f.retryAfter = errorHold
	}
	return f
}

func reasonOf(err error) Reason {
	switch {
	case apierrors.IsTooManyRequests(err):
		return ReasonThrottled
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge),
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Too large resource version"):
		return ReasonTooLargeRV
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return ReasonGone
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return ReasonForbidden
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return ReasonNotFound
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return ReasonTimeout
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return ReasonServerError
	}
	return ReasonNoServer
}
