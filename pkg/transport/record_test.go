// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes/scheme"
)

// Where admission failed the apiserver has written nothing, whatever the code: the outcome of a write is known. That of a deletion is not, which may have been
// made in part, nor is it after an error of storage, or of somebody else, that has the same words in it.
func TestAWriteThatWasNotAdmittedWasNotMade(t *testing.T) {
	denied := func(result metav1.Status) *apierrors.StatusError {
		return webhookerrors.ToStatusErr("policy.example.com", &result)
	}
	called := &webhook.ErrCallingWebhook{WebhookName: "policy.example.com", Reason: errors.New("connection refused")}
	for name, tc := range map[string]struct {
		answer  *apierrors.StatusError
		unknown bool
	}{
		"webhook not called":              {apierrors.NewInternalError(called), false},
		"webhook failed":                  {denied(metav1.Status{Code: http.StatusInternalServerError, Message: "no connection"}), false},
		"webhook failed, by a reason":     {denied(metav1.Status{Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable}), false},
		"webhook failed, no explanation":  {denied(metav1.Status{Code: http.StatusInternalServerError}), false},
		"quota not counted in time":       {apierrors.NewInternalError(errors.New("resource quota evaluation timed out")), false},
		"storage failed":                  {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), true},
		"storage failed with these words": {apierrors.NewInternalError(errors.New(`etcdserver: admission webhook "a" denied the request`)), true},
		"more than the quota":             {apierrors.NewInternalError(errors.New("resource quota evaluation timed out after the write")), true},
		"timeout":                         {apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			answer := tc.answer.ErrStatus
			answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			require.GreaterOrEqual(t, answer.Code, int32(http.StatusInternalServerError))
			body, err := json.Marshal(answer)
			require.NoError(t, err)
			for method, unknown := range map[string]bool{http.MethodPost: tc.unknown, http.MethodPut: tc.unknown, http.MethodPatch: tc.unknown, http.MethodDelete: true} {
				resp := &http.Response{StatusCode: int(answer.Code), Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(bytes.NewReader(body))}
				require.Equal(t, unknown, outcomeUnknown(&http.Request{Method: method}, resp, nil), method)
				left, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, body, left, "the controller still gets the answer")
			}
		})
	}
}

// What could not be sent was not made: the server cannot be reached, as while its address moves. A connection that ends is another matter.
func TestAWriteWithoutAConnectionWasNotMade(t *testing.T) {
	for name, tc := range map[string]struct {
		dial    func(ctx context.Context, network, address string) (net.Conn, error)
		unknown bool
	}{
		"no route": {func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
		}, false},
		"no answer in time": {func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Deadline: time.Now()}).DialContext(ctx, network, "127.0.0.1:1")
		}, false},
		"the connection ends": {func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				_, _ = server.Read(make([]byte, 1))
				_ = server.Close()
			}()
			return client, nil
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:1/api/v1/namespaces/ns/pods", strings.NewReader("{}"))
			_, err := (&http.Transport{DialContext: tc.dial}).RoundTrip(req) //nolint:bodyclose // There is none.
			require.Error(t, err)
			require.Equal(t, tc.unknown, outcomeUnknown(req, nil, err), err)
		})
	}
}

// Only a creation that is refused because the namespace is being deleted leaves upstream's expectations in force; the controller still gets the answer.
func TestACreationThatEndsWithItsNamespace(t *testing.T) {
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("unable to create new content"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		method string
		answer *apierrors.StatusError
		ends   bool
	}{
		"a creation": {http.MethodPost, ending, true},
		"an update":  {http.MethodPut, ending, false},
		"a quota":    {http.MethodPost, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("exceeded quota")), false},
		"a conflict": {http.MethodPost, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "a", errors.New("changed")), false},
	} {
		for contentType, codec := range map[string]runtime.Encoder{
			runtime.ContentTypeJSON:     scheme.Codecs.LegacyCodec(metav1.SchemeGroupVersion),
			runtime.ContentTypeProtobuf: protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
		} {
			t.Run(name+", "+contentType, func(t *testing.T) {
				answer := tc.answer.ErrStatus
				answer.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
				body, err := runtime.Encode(codec, &answer)
				require.NoError(t, err)
				resp := &http.Response{StatusCode: int(answer.Code), Header: http.Header{"Content-Type": {contentType}}, Body: io.NopCloser(bytes.NewReader(body))}
				require.Equal(t, tc.ends, ownerWrite{req: &http.Request{Method: tc.method}}.endsWithNamespace(resp))
				left, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, body, left)
			})
		}
	}
	require.False(t, ownerWrite{req: &http.Request{Method: http.MethodPost}}.endsWithNamespace(nil), "no answer")
}
