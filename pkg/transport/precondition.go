// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/inventory"
	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

// conditional is a transport that does not send a deletion which lacks the precondition that the inventory promises: it would
// delete whatever has the name by now. One that cannot be read is sent.
type conditional struct {
	next   http.RoundTripper
	at     endpoint
	client string
	// exempt are the controllers that are as upstream's, by the names of --controllers.
	exempt sets.Set[string]
}

// PreconditionError says that a deletion was not sent.
type PreconditionError struct {
	// Client is whose deletion it is, Path what it is for.
	Client, Path string
	Resource     schema.GroupResource
	Missing      []inventory.Precondition
}

// Error implements error.
func (e *PreconditionError) Error() string {
	var missing []string
	for _, m := range e.Missing {
		missing = append(missing, string(m))
	}
	return fmt.Sprintf("DELETE %s was not sent: a deletion of %s by %s must name the %s of the object, and this one does not",
		e.Path, e.Resource, e.Client, strings.Join(missing, " and the "))
}

// RoundTrip implements http.RoundTripper.
func (c conditional) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodDelete {
		if err := c.check(req); err != nil {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			metrics.RefusedDeletion(c.client)
			if firstOf("refused", c.client, err.Resource.String()) {
				klog.FromContext(req.Context()).Error(err, "Refused a deletion without the precondition that docs/coverage.md promises; later ones are only counted. "+
					"--stale-controller-consistency-exempt takes the controller out", "client", c.client, "resource", err.Resource)
			}
			return nil, err
		}
	}
	return c.next.RoundTrip(req)
}

// check returns an error if the request is the deletion of an object and lacks what all rules for it promise.
func (c conditional) check(req *http.Request) *PreconditionError {
	info := c.at.resource(req)
	if info == nil || info.Verb != "delete" || info.Subresource != "" {
		return nil
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	promises := inventory.Promises(c.client, resource, c.exempt)
	if len(promises) == 0 {
		return nil
	}
	options, err := deleteOptions(req)
	if err != nil {
		if firstOf("unreadable", c.client, resource.String()) {
			klog.FromContext(req.Context()).Error(err, "The preconditions of a deletion cannot be read; it is sent", "client", c.client, "resource", resource)
		}
		return nil
	}
	missing := lacking(options.Preconditions, promises)
	if len(missing) == 0 {
		return nil
	}
	return &PreconditionError{Client: c.client, Path: req.URL.Path, Resource: resource, Missing: missing}
}

// lacking is what the preconditions lack of that promise which they come closest to.
func lacking(got *metav1.Preconditions, promises [][]inventory.Precondition) []inventory.Precondition {
	var least []inventory.Precondition
	for i, promised := range promises {
		lacks := slices.DeleteFunc(slices.Clone(promised), func(p inventory.Precondition) bool { return carries(got, p) })
		if i == 0 || len(lacks) < len(least) {
			least = lacks
		}
	}
	return least
}

// carries reports whether one of the preconditions is there. An empty one is: the apiserver compares it, too.
func carries(preconditions *metav1.Preconditions, p inventory.Precondition) bool {
	switch {
	case preconditions == nil:
		return false
	case p == inventory.UID:
		return preconditions.UID != nil
	}
	return preconditions.ResourceVersion != nil
}

// optionCodecs reads options in JSON and protobuf, whatever group they name, as the apiserver does: a client names that of its resource.
var optionCodecs = serializer.NewCodecFactory(runtime.NewScheme())

// deleteOptions are those in the body of a deletion, which can be read again.
func deleteOptions(req *http.Request) (*metav1.DeleteOptions, error) {
	options := &metav1.DeleteOptions{}
	if req.Body == nil || req.Body == http.NoBody {
		return options, nil
	}
	if req.GetBody == nil {
		return nil, fmt.Errorf("the body can be read only once")
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil || len(raw) == 0 {
		return options, err
	}
	contentType := req.Header.Get("Content-Type")
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", contentType, err)
	}
	if mediaType == runtime.ContentTypeCBOR {
		return options, cbor.Unmarshal(raw, options) // The serializer does not read a type that no scheme has.
	}
	encoding, ok := runtime.SerializerInfoForMediaType(optionCodecs.SupportedMediaTypes(), mediaType)
	if !ok {
		return nil, fmt.Errorf("content type %q is not known", contentType)
	}
	_, _, err = encoding.Serializer.Decode(raw, nil, options)
	return options, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (c conditional) WrappedRoundTripper() http.RoundTripper { return c.next }
