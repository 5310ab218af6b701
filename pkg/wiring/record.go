// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package wiring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// recorder is a transport that records what the server answers to the writes of an owner: a request
// whose context carries one (consistency.WithOwner) is recorded in that owner's store, before the
// controller sees the answer. Other requests pass untouched. So no write of a reconcile can be
// forgotten, whatever helper makes it.
type recorder struct {
	next http.RoundTripper
}

var requestInfo = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

var mutating = sets.New(http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)

// RoundTrip implements http.RoundTripper.
func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if !mutating.Has(req.Method) {
		return r.next.RoundTrip(req)
	}
	owner, ok := consistency.OwnerFrom(req.Context())
	if !ok || req.URL.Query().Has("dryRun") {
		return r.next.RoundTrip(req)
	}
	sent := sending(owner, req)
	resp, err := r.next.RoundTrip(req)
	if outcomeUnknown(req, resp, err) {
		unsettled(owner, req)
	}
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		unsettled(owner, req)
		return nil, fmt.Errorf("reading the answer to %s %s: %w", req.Method, req.URL.Path, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err := recordAnswer(owner, req, sent, resp.Header.Get("Content-Type"), body); err != nil {
		if s, ok := owner.Store.(interface {
			Untracked(owner types.NamespacedName, ownerUID types.UID)
		}); ok {
			s.Untracked(owner.Name, owner.UID)
		}
		klog.FromContext(req.Context()).Error(err, "A write is not tracked: its owner is reconciled without waiting for it",
			"owner", owner.Name, "method", req.Method, "path", req.URL.Path)
	}
	return resp, nil
}

// outcomeUnknown says that a write may or may not have been made: its answer was lost on the way, or the
// server could not say.
func outcomeUnknown(req *http.Request, resp *http.Response, err error) bool {
	if err == nil {
		return resp.StatusCode >= http.StatusInternalServerError && !webhookFailed(req, resp)
	}
	var refused *NotLeaderError
	return !errors.As(err, &refused) && !utilnet.IsConnectionRefused(err)
}

// webhookFailed reports whether the answer says that an admission webhook could not be called, so that nothing
// was written: admission comes before storage (k8s.io/apiserver/pkg/util/webhook/error.go). A deletion may have
// been made in part by then. The body can be read again.
func webhookFailed(req *http.Request, resp *http.Response) bool {
	if req.Method == http.MethodDelete {
		return false
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return false
	}
	got, err := decode(resp.Header.Get("Content-Type"), body)
	return err == nil && got.Kind == "Status" && strings.HasPrefix(got.Message, "Internal error occurred: failed calling webhook ")
}

// unsettled tells the owner's store of a write with unknown outcome.
func unsettled(owner consistency.Owner, req *http.Request) {
	info, err := requestInfo.NewRequestInfo(req)
	if err != nil || !info.IsResourceRequest {
		return
	}
	if s, ok := owner.Store.(interface {
		Unsettled(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource)
	}); ok {
		s.Unsettled(owner.Name, owner.UID, schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
	}
}

func (r recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

// answer is what a write's response says: the object, or for some deletes a Status that names it.
type answer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Details           *metav1.StatusDetails `json:"details"`
	Message           string                `json:"message"`
}

// deleteRecorder is what a store has that can wait for an object to be gone.
type deleteRecorder interface {
	Deleted(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, key types.NamespacedName, uid types.UID)
}

// writeRecorder is what a store has that knows how far its caches had got when a write was sent.
type writeRecorder interface {
	Sending(resource schema.GroupResource) rvtracker.Sent
	Wrote(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, answer metav1.ObjectMeta, sent rvtracker.Sent)
}

// sending notes, for recordAnswer, how far the cache has got that will show a write.
func sending(owner consistency.Owner, req *http.Request) rvtracker.Sent {
	s, ok := owner.Store.(writeRecorder)
	if !ok {
		return rvtracker.Sent{}
	}
	info, err := requestInfo.NewRequestInfo(req)
	if err != nil || !info.IsResourceRequest {
		return rvtracker.Sent{}
	}
	return s.Sending(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
}

func recordAnswer(owner consistency.Owner, req *http.Request, sent rvtracker.Sent, contentType string, body []byte) error {
	info, err := requestInfo.NewRequestInfo(req)
	if err != nil {
		return err
	}
	if !info.IsResourceRequest {
		return nil
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	got, err := decode(contentType, body)
	if err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	if got.Kind == "Status" && got.APIVersion == "v1" {
		// The object is gone already, or, for a subresource such as binding, its version is not told.
		d, ok := owner.Store.(deleteRecorder)
		if ok && req.Method == http.MethodDelete && got.Details != nil {
			d.Deleted(owner.Name, owner.UID, resource, types.NamespacedName{Namespace: info.Namespace, Name: info.Name}, got.Details.UID)
		}
		return nil
	}
	// What a deletion answers with may be from before it (kubernetes/kubernetes 138400).
	if s, ok := owner.Store.(writeRecorder); ok && req.Method != http.MethodDelete {
		s.Wrote(owner.Name, owner.UID, resource, got.ObjectMeta, sent)
		return nil
	}
	owner.Store.WroteAt(owner.Name, owner.UID, resource, got.ResourceVersion)
	return nil
}

// protobufPrefix begins every object in Kubernetes' protobuf encoding.
var protobufPrefix = []byte{'k', '8', 's', 0}

// decode reads the metadata of an object, or a Status, in any encoding that the clients ask for.
func decode(contentType string, body []byte) (*answer, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", contentType, err)
	}
	var got answer
	switch mediaType {
	case runtime.ContentTypeJSON:
		return &got, json.Unmarshal(body, &got)
	case runtime.ContentTypeProtobuf:
		raw, ok := bytes.CutPrefix(body, protobufPrefix)
		if !ok {
			return nil, fmt.Errorf("no %q prefix", protobufPrefix)
		}
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(raw); err != nil {
			return nil, err
		}
		got.Kind, got.APIVersion = unknown.Kind, unknown.APIVersion
		if unknown.Kind == "Status" && unknown.APIVersion == "v1" {
			var status metav1.Status
			err := status.Unmarshal(unknown.Raw)
			got.Details, got.Message = status.Details, status.Message
			return &got, err
		}
		// Every object has its metadata in field 1; the other fields are skipped.
		var object metav1.PartialObjectMetadata
		err := object.Unmarshal(unknown.Raw)
		got.ObjectMeta = object.ObjectMeta
		return &got, err
	}
	return nil, fmt.Errorf("content type %q is neither JSON nor protobuf", contentType)
}
