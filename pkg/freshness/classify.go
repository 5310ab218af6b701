// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	flowcontrol "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// errorBackoff is the delay after an error without a Retry-After, so that callers that meet a broken server
	// one after another do not each send a request.
	errorBackoff = time.Second
	// refusedBackoff is the delay after an error that only an operator can mend.
	refusedBackoff = 10 * time.Second
	// maxBackoff bounds what a server can ask for.
	maxBackoff = time.Minute
)

// classify maps the error of a request to a reason. An error is never evidence about a cache.
func classify(err error, headers http.Header) *failure {
	f := &failure{reason: reasonOf(err), err: readable{err}}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		f.retryAfter = time.Duration(seconds) * time.Second
	} else if seconds, err := strconv.Atoi(headers.Get("Retry-After")); err == nil && seconds > 0 {
		f.retryAfter = time.Duration(min(seconds, int(maxBackoff/time.Second))) * time.Second
	}
	switch f.reason {
	case reasonThrottled, ReasonForbidden, ReasonNotFound, ReasonTimeout, reasonServerError:
		f.refusal = true
	}
	overload := f.reason == reasonThrottled && apierrors.IsUnexpectedServerError(err)
	if f.reason == reasonThrottled {
		// API Priority and Fairness names the level in every answer, but rejects in plain text, whereas
		// storage and handlers answer with a Status. A server behind kube-apiserver may reject in the same
		// way; see builtIn.
		f.level = headers.Get(flowcontrol.ResponseHeaderMatchedPriorityLevelConfigurationUID)
		f.overload = overload && f.level != ""
	}
	switch {
	case overload:
		f.retryAfter = min(max(f.retryAfter, errorBackoff), levelBackoff)
	case f.retryAfter > maxBackoff:
		f.retryAfter = maxBackoff
	case f.retryAfter > 0:
	case f.reason == ReasonForbidden, f.reason == ReasonNotFound:
		f.retryAfter = refusedBackoff
	default:
		f.retryAfter = errorBackoff
	}
	return f
}

// refusal is an answer that cannot be used.
func refusal(format string, args ...any) *failure {
	return &failure{reason: reasonServerError, retryAfter: errorBackoff, refusal: true, err: fmt.Errorf(format, args...)}
}

// maxText is how many bytes of a server's text are shown; maxLevel is the longest text that counts as a UID.
const (
	maxText  = 512
	maxLevel = 64
)

// readable shows an error that has text of the server in it, which may be anything: in one line, without
// control characters, and cut to maxText.
type readable struct{ err error }

// Error implements error.
func (e readable) Error() string { return printable(cut(e.err.Error())) }

// Unwrap returns the error as it came.
func (e readable) Unwrap() error { return e.err }

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "..."
}

// printable escapes what is not printable as in a Go string, and leaves quotes as they are.
func printable(text string) string {
	var b strings.Builder
	for _, c := range text {
		if strconv.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		quoted := strconv.QuoteRune(c)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func reasonOf(err error) Reason {
	switch {
	case apierrors.IsTooManyRequests(err):
		return reasonThrottled
	case apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge),
		apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Too large resource version"):
		return reasonTooLargeRV
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return reasonGone
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
		return reasonServerError
	}
	return ReasonNoServer
}
