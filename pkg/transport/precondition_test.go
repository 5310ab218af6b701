// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/utils/ptr"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

var (
	uid             = ptr.To(types.UID("u"))
	resourceVersion = new("7")
)

// acceptingServer says yes to everything, and notes the body of each request.
func acceptingServer(t *testing.T) (string, *[]string) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		require.NoError(t, err)
		bodies = append(bodies, string(body))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}))
	t.Cleanup(server.Close)
	return server.URL, &bodies
}

// A deletion without the precondition that its rule promises is not sent, in any encoding; all others are, with the body as it was.
func TestADeletionCarriesWhatIsPromised(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, features.ClientsAllowCBOR, true)
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	type clients struct {
		typed    kubernetes.Interface
		metadata metadata.Interface
		dynamic  dynamic.Interface
	}
	pod := func(ctx context.Context, c clients, options metav1.DeleteOptions) error {
		return c.typed.CoreV1().Pods("ns").Delete(ctx, "a", options)
	}
	request := func(ctx context.Context, c clients, options metav1.DeleteOptions) error {
		return c.typed.CertificatesV1().CertificateSigningRequests().Delete(ctx, "a", options)
	}
	secret := func(ctx context.Context, c clients, options metav1.DeleteOptions) error {
		return c.typed.CoreV1().Secrets("ns").Delete(ctx, "a", options)
	}
	widget := func(ctx context.Context, c clients, options metav1.DeleteOptions) error {
		return c.metadata.Resource(widgets).Namespace("ns").Delete(ctx, "a", options)
	}
	const podGC, cleaner, token, legacy, gc = "pod-garbage-collector", "certificate-controller", "token-cleaner", "legacy-service-account-token-cleaner", "generic-garbage-collector"
	for name, test := range map[string]struct {
		client  string
		do      func(ctx context.Context, c clients, options metav1.DeleteOptions) error
		with    *metav1.Preconditions
		refused string
	}{
		"by name":                             {podGC, pod, nil, "a deletion of pods by pod-garbage-collector must name the UID of the object"},
		"empty preconditions":                 {podGC, pod, &metav1.Preconditions{}, "must name the UID of"},
		"another precondition":                {podGC, pod, &metav1.Preconditions{ResourceVersion: resourceVersion}, "must name the UID of"},
		"by UID":                              {podGC, pod, &metav1.Preconditions{UID: uid}, ""},
		"by more":                             {podGC, pod, &metav1.Preconditions{UID: uid, ResourceVersion: resourceVersion}, ""},
		"in a group, by name":                 {cleaner, request, nil, "certificatesigningrequests.certificates.k8s.io by certificate-controller must name the UID and the resource version of"},
		"in a group, by UID alone":            {cleaner, request, &metav1.Preconditions{UID: uid}, "must name the resource version of"},
		"in a group, as read":                 {cleaner, request, &metav1.Preconditions{UID: uid, ResourceVersion: resourceVersion}, ""},
		"by UID where it must be as read":     {token, secret, &metav1.Preconditions{UID: uid}, "must name the resource version of"},
		"by version alone":                    {legacy, secret, &metav1.Preconditions{ResourceVersion: resourceVersion}, ""},
		"by UID where it must be the version": {legacy, secret, &metav1.Preconditions{UID: uid}, "must name the resource version of"},
		"custom resource, by name":            {gc, widget, nil, "widgets.example.com by generic-garbage-collector must name the UID of"},
		"custom resource, by UID":             {gc, widget, &metav1.Preconditions{UID: uid}, ""},
		"dynamic client, by name": {gc, func(ctx context.Context, c clients, options metav1.DeleteOptions) error {
			return c.dynamic.Resource(widgets).Namespace("ns").Delete(ctx, "a", options)
		}, nil, "must name the UID of"},
		"dynamic client, by UID": {gc, func(ctx context.Context, c clients, options metav1.DeleteOptions) error {
			return c.dynamic.Resource(widgets).Namespace("ns").Delete(ctx, "a", options)
		}, &metav1.Preconditions{UID: uid}, ""},
		"no promise":                   {"daemon-set-controller", pod, nil, ""},
		"no rule":                      {"ttl-controller", pod, nil, ""},
		"not a controller":             {"nobody", pod, nil, ""},
		"another controller of a name": {"node-controller", pod, nil, "must name the UID of"},
		"a namespace that terminates":  {"namespace-controller", widget, nil, ""},
		"a collection": {podGC, func(ctx context.Context, c clients, options metav1.DeleteOptions) error {
			return c.typed.CoreV1().Pods("ns").DeleteCollection(ctx, options, metav1.ListOptions{})
		}, nil, ""},
		"a collection of what the collector deletes": {gc, func(ctx context.Context, c clients, options metav1.DeleteOptions) error {
			return c.metadata.Resource(widgets).Namespace("ns").DeleteCollection(ctx, options, metav1.ListOptions{})
		}, nil, ""},
		"an eviction": {podGC, func(ctx context.Context, c clients, _ metav1.DeleteOptions) error {
			return c.typed.PolicyV1().Evictions("ns").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
		}, nil, ""},
		"no deletion": {cleaner, func(ctx context.Context, c clients, _ metav1.DeleteOptions) error {
			_, err := c.typed.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, "a", &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
			return err
		}, nil, ""},
	} {
		for encoding, contentType := range map[string]string{"protobuf": runtime.ContentTypeProtobuf, "JSON": runtime.ContentTypeJSON, "CBOR": runtime.ContentTypeCBOR} {
			t.Run(name+", "+encoding, func(t *testing.T) {
				url, bodies := acceptingServer(t)
				builder := clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: url, ContentConfig: restclient.ContentConfig{ContentType: contentType}}}
				send := func(b clientbuilder.ControllerClientBuilder, client string) error {
					config := b.ConfigOrDie(client)
					return test.do(t.Context(), clients{kubernetes.NewForConfigOrDie(config), metadata.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)},
						metav1.DeleteOptions{Preconditions: test.with, GracePeriodSeconds: ptr.To[int64](3)})
				}
				require.NoError(t, send(builder, test.client))
				before := counted(t, refusedDeletions)[test.client]
				err := send(wrappedBuilder{builder, func(next http.RoundTripper, at endpoint, client string) http.RoundTripper {
					return conditional{next: next, at: at, client: client}
				}}, test.client)
				if test.refused == "" {
					require.NoError(t, err)
					require.Len(t, *bodies, 2)
					require.Equal(t, (*bodies)[0], (*bodies)[1], "the body is as without")
					require.Equal(t, before, counted(t, refusedDeletions)[test.client])
					return
				}
				var refused *PreconditionError
				require.ErrorAs(t, err, &refused)
				require.Contains(t, refused.Error(), test.refused)
				require.Len(t, *bodies, 1, "it is not sent")
				require.Equal(t, before+1, counted(t, refusedDeletions)[test.client])
			})
		}
	}
}

const refusedDeletions = "stale_controller_refused_deletions_total"

// counted is what a metric of the transport counts, by client.
func counted(t *testing.T, name string) map[string]float64 {
	metrics.Register()
	metrics.Undeclared("nobody", "create") // So that there are series to read.
	metrics.InitRefusedDeletions("nobody")
	value, err := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer, name, map[string]string{}, "client")
	require.NoError(t, err)
	return value
}

// An exempt controller is as upstream's; others with its client are not.
func TestAnExemptControllerPromisesNothing(t *testing.T) {
	url, bodies := acceptingServer(t)
	builder := clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: url}}
	remove := func(client string, exempt ...string) error {
		return Clients(builder, nil, exempt...).ClientOrDie(client).CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{})
	}
	require.NoError(t, remove("pod-garbage-collector", "pod-garbage-collector-controller"))
	require.NoError(t, remove("node-controller", "taint-eviction-controller"))
	require.Len(t, *bodies, 2)
	require.Error(t, remove("node-controller", "node-lifecycle-controller", "pod-garbage-collector-controller"))
	require.Len(t, *bodies, 2)
}

// Not every body shows the preconditions of a deletion. It is sent then.
func TestADeletionThatCannotBeReadIsSent(t *testing.T) {
	const options = `{"kind":"DeleteOptions","apiVersion":"v1"}`
	for name, test := range map[string]struct {
		contentType, body string
		once              bool
		refused           bool
	}{
		"readable":              {contentType: "application/json", body: options, refused: true},
		"with a character set":  {contentType: "application/json; charset=utf-8", body: options, refused: true},
		"of a group":            {contentType: "application/json", body: `{"kind":"DeleteOptions","apiVersion":"apps/v1"}`, refused: true},
		"empty":                 {contentType: "application/json", refused: true},
		"unknown content type":  {contentType: "application/example", body: options},
		"no content type":       {body: options},
		"not of that type":      {contentType: "application/json", body: "{"},
		"not protobuf":          {contentType: runtime.ContentTypeProtobuf, body: options},
		"can be read only once": {contentType: "application/json", body: options, once: true},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://server/api/v1/namespaces/ns/pods/a", strings.NewReader(test.body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", test.contentType)
			if test.once {
				req.GetBody = nil
			}
			wire := &sent{}
			_, err = conditional{next: wire, client: "pod-garbage-collector"}.RoundTrip(req)
			if test.refused {
				require.Error(t, err)
				require.Empty(t, *wire)
				return
			}
			require.NoError(t, err)
			require.Len(t, *wire, 1)
		})
	}
}

// Where controllers share a client it is enough that a deletion carries what one of them promises.
func TestADeletionKeepsOnePromiseOfSeveral(t *testing.T) {
	const id, version = inventory.UID, inventory.ResourceVersion
	promises := [][]inventory.Precondition{{id, version}, {version}}
	require.Equal(t, []inventory.Precondition{version}, lacking(nil, promises))
	require.Equal(t, []inventory.Precondition{version}, lacking(&metav1.Preconditions{UID: uid}, promises))
	require.Empty(t, lacking(&metav1.Preconditions{ResourceVersion: resourceVersion}, promises))
	require.Empty(t, lacking(&metav1.Preconditions{UID: uid, ResourceVersion: resourceVersion}, promises))
}

// A deletion that was not sent is none whose outcome is unknown: its owner does not wait.
func TestADeletionThatIsNotSentIsNotLost(t *testing.T) {
	url, _ := acceptingServer(t)
	builder := Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: url}}, nil)
	err := builder.ClientOrDie("pod-garbage-collector").CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{})
	require.Error(t, err)
	require.False(t, outcomeUnknown(&http.Request{}, nil, err))
	require.True(t, outcomeUnknown(&http.Request{}, nil, io.ErrUnexpectedEOF))
}
