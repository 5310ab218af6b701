// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
)

// Store is the consistency store of a controller, as far as the writes for its owners concern it.
type Store interface {
	consistency.ConsistencyStore
	// Sending notes, before a write is sent, how far the cache has got that will show it.
	Sending(resource schema.GroupResource) rvtracker.Sent
	// Wrote has the owner wait until the cache shows the write that was answered so.
	Wrote(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, answer metav1.ObjectMeta, sent rvtracker.Sent)
	// Deleted has the owner wait until the cache shows the object gone or terminating.
	Deleted(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, key types.NamespacedName, uid types.UID)
	// Fenced says at which version a write was made, and when it was sent: whatever was committed before has a lower one.
	Fenced(resource schema.GroupResource, rv string, sent rvtracker.Sent)
	// Withholds returns an error if a write must not be sent, and whether what it would create is known to be there. sent is the object in the request, empty if it has none.
	Withholds(owner types.NamespacedName, ownerUID types.UID, what Write, sent func() metav1.ObjectMeta) (there bool, err error)
	// Recorded says that a write was recorded.
	Recorded(owner types.NamespacedName, what Write)
	// Failed says that a write was refused, or that nobody knows what became of it. A deletion of what is gone is not refused, if the controller takes that for success.
	Failed(owner types.NamespacedName, what Write)
	// Untracked says that a write could not be recorded, so that nothing waits for it.
	Untracked(owner types.NamespacedName, ownerUID types.UID)
	// Unsettled says that the answer to a write was lost. If the client would have sent it again after retry, the store has
	// the owner reconciled again in its place. It does nothing unless the write is tracked.
	Unsettled(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, retry time.Duration) (again PutOff, tracked bool)
	// Redecides reports whether a write of an object has to be decided again where the client would send it again after a while: it rests on what its controller knew when it began.
	Redecides(what Write, object types.NamespacedName) bool
	// RetryAfter says that the server has refused such a write, and asks to wait for so long. The store has the owner reconciled again.
	RetryAfter(owner types.NamespacedName, what Write, after time.Duration) PutOff
}

// Write is what kind of write a request is.
type Write struct {
	Method      string
	Resource    schema.GroupResource
	Subresource string
}

// PutOff is a write that is decided again: its owner is reconciled again after that time, or sooner if an event wants it, and later only if another write of it fails, or a proof is missing. The rest
// of the reconcile goes on, or is left to that.
type PutOff struct {
	After  time.Duration
	GoesOn bool
}

// NeverRetried says of a write whose outcome is unknown that its client would not have sent it again.
const NeverRetried time.Duration = -1

// recorder is a transport that records what the server answers to the writes of an owner: a request
// whose context carries one (consistency.WithOwner) is recorded in that owner's store, before the
// controller sees the answer. Other requests pass untouched. So no write of a reconcile can be
// forgotten, whatever helper makes it. A write that the inventory does not have is counted, whoever makes it.
type recorder struct {
	next   http.RoundTripper
	at     endpoint
	client string
}

var mutating = sets.New(http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete)

// RoundTrip implements http.RoundTripper.
func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if !mutating.Has(req.Method) {
		return r.next.RoundTrip(req)
	}
	info := r.at.resource(req)
	if info != nil {
		countUndeclared(req.Context(), r.client, info)
	}
	owner, ok := consistency.OwnerFrom(req.Context())
	if !ok || req.URL.Query().Has("dryRun") {
		resp, err := r.next.RoundTrip(req)
		consistency.Wrote(req.Context(), err != nil || resp.StatusCode >= http.StatusMultipleChoices)
		return resp, err
	}
	store, ok := owner.Store.(Store)
	if !ok {
		return r.next.RoundTrip(req) // It is upstream's.
	}
	w := ownerWrite{owner: owner, store: store, req: req, info: info, sent: sync.OnceValues(func() (*answer, error) { return sentIn(req) })}
	if there, err := store.Withholds(owner.Name, owner.UID, w.what(), w.sentMeta); err != nil {
		return nil, err
	} else if there {
		return w.alreadyExists()
	}
	var sent rvtracker.Sent // How far the cache has got that will show the write.
	if w.info != nil {
		sent = store.Sending(w.resource())
	}
	resp, err := r.next.RoundTrip(req)
	unknown := outcomeUnknown(req, resp, err)
	refused := !unknown && (err != nil || resp.StatusCode >= http.StatusMultipleChoices)
	consistency.Wrote(req.Context(), unknown || refused)
	if unknown || refused && !w.gone(resp) {
		store.Failed(owner.Name, w.what())
	}
	if refused {
		if w.endsWithNamespace(resp) {
			store.Untracked(owner.Name, owner.UID)
		}
		if after := retryAfter(resp); after > 0 && store.Redecides(w.what(), w.object()) {
			return nil, w.again(resp, store.RetryAfter(owner.Name, w.what(), after))
		}
		return resp, err
	}
	if w.info == nil {
		w.unrecorded(metrics.PathUnreadable, errors.New("its path names no resource"))
		return resp, err
	}
	if unknown {
		if retry := w.lost(resp); retry != nil {
			return nil, retry
		}
		return resp, err
	}
	read, err := readBody(resp.Body, resp.ContentLength)
	_ = resp.Body.Close()
	if err != nil {
		_ = read.Close()
		store.Failed(owner.Name, w.what())
		_ = w.lost(nil)
		return nil, fmt.Errorf("reading the answer to %s %s: %w", req.Method, req.URL.Path, err)
	}
	resp.Body = read
	if err := w.record(sent, resp.Header.Get("Content-Type"), read.raw()); err != nil {
		w.unrecorded(metrics.AnswerUnreadable, err)
	} else {
		store.Recorded(owner.Name, w.what())
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (r recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

// outcomeUnknown says that a write may or may not have been made: its answer was lost on the way, or the
// server could not say.
func outcomeUnknown(req *http.Request, resp *http.Response, err error) bool {
	if err == nil {
		return resp.StatusCode >= http.StatusInternalServerError && !notAdmitted(req, resp)
	}
	var notLeader *NotLeaderError
	var unguarded *PreconditionError
	return !errors.As(err, &notLeader) && !errors.As(err, &unguarded) && !utilnet.IsConnectionRefused(err) && !unconnected(err)
}

// unconnected reports whether there was no connection by which anything could have been sent.
func unconnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// refusals begin what the apiserver says where admission failed with a server error, in its words: a webhook could not be called
// (k8s.io/apiserver/pkg/util/webhook/error.go), or refused with such a code (pkg/admission/plugin/webhook/errors/statuserror.go), or a quota
// was not counted in time (pkg/admission/plugin/resourcequota/controller.go).
var refusals = regexp.MustCompile(`^(Internal error occurred: failed calling webhook |admission webhook "[^"]+" denied the request|Internal error occurred: resource quota evaluation timed out$)`)

// notAdmitted reports whether the answer says that admission failed, so that nothing was written: it comes before storage. A deletion may have
// been made in part before that. The body can be read again.
func notAdmitted(req *http.Request, resp *http.Response) bool {
	if req.Method == http.MethodDelete {
		return false
	}
	status := statusOf(resp)
	return status != nil && refusals.MatchString(status.message)
}

// statusOf returns the Status that an answer is, or nil. The body can be read again.
func statusOf(resp *http.Response) *answer {
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return nil
	}
	got, err := decode(resp.Header.Get("Content-Type"), body)
	if err != nil || got.kind != "Status" {
		return nil
	}
	return got
}

// ownerWrite is a write that was sent for an owner.
type ownerWrite struct {
	owner consistency.Owner
	store Store
	req   *http.Request
	info  *request.RequestInfo    // nil: the path names no resource
	sent  func() (*answer, error) // the object in the request, see sentIn
}

func (w ownerWrite) resource() schema.GroupResource {
	return schema.GroupResource{Group: w.info.APIGroup, Resource: w.info.Resource}
}

// object is the one that is written, as far as the request names it.
func (w ownerWrite) object() types.NamespacedName {
	if w.info == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: w.info.Namespace, Name: w.info.Name}
}

func (w ownerWrite) what() Write {
	if w.info == nil {
		return Write{Method: w.req.Method}
	}
	return Write{Method: w.req.Method, Resource: w.resource(), Subresource: w.info.Subresource}
}

// endsWithNamespace reports whether a creation was refused because the namespace is being deleted. Upstream's controllers take that for one that
// was made (pkg/controller/replicaset/replica_set.go, manageReplicas) and stop at what they expect of it. So that has to stay in force: they would try to make
// each pod again that is deleted with the namespace, again and again. resp is nil if there was no answer.
func (w ownerWrite) endsWithNamespace(resp *http.Response) bool {
	if resp == nil || resp.StatusCode != http.StatusForbidden || w.req.Method != http.MethodPost {
		return false
	}
	status := statusOf(resp)
	return status != nil && status.details != nil && slices.ContainsFunc(status.details.Causes, func(c metav1.StatusCause) bool {
		return c.Type == corev1.NamespaceTerminatingCause
	})
}

// gone reports whether a pod or a ReplicaSet that was to be deleted is gone already. Upstream's controllers of pods take that for success, as the Deployment
// controller does (pkg/controller/replicaset/replica_set.go, manageReplicas; pkg/controller/deployment/sync.go, cleanupDeployment). That of CronJobs, which
// deletes Jobs, does not.
func (w ownerWrite) gone(resp *http.Response) bool {
	return resp != nil && resp.StatusCode == http.StatusNotFound && w.req.Method == http.MethodDelete && w.info != nil && (w.info.Resource == "pods" || w.info.Resource == "replicasets")
}

// unrecorded says that nothing waits for the write, so that upstream's expectations stay in force.
func (w ownerWrite) unrecorded(cause string, err error) {
	w.store.Untracked(w.owner.Name, w.owner.UID)
	metrics.Unrecorded(cause)
	klog.FromContext(w.req.Context()).Error(err, "Failed to record a write; its owner does not wait for it",
		"owner", w.owner.Name, "method", w.req.Method, "path", w.req.URL.Path)
}

// lost tells the owner's store of a write with unknown outcome. resp is a server error, or nil.
//
// After a server error with Retry-After client-go sends the request again on its own, beneath the controller and
// its store. If the first was carried out, a second one creates another object, unless both have one name. So the
// owner's store does in its place what is asked: it waits as long, learns what became of the write, and has the
// controller decide again. The error says so. So it does for what may not be wanted any more by then.
func (w ownerWrite) lost(resp *http.Response) error {
	retry := NeverRetried
	if after := retryAfter(resp); after >= 0 && w.createsAnother() || after > 0 && w.store.Redecides(w.what(), w.object()) {
		retry = after
	}
	again, tracked := w.store.Unsettled(w.owner.Name, w.owner.UID, w.resource(), retry)
	if !tracked || retry == NeverRetried {
		return nil
	}
	return w.again(resp, again)
}

// retryAfter is after how long the client would send the request again, NeverRetried if it would not (client-go, rest/with_retry.go). resp may be nil.
func retryAfter(resp *http.Response) time.Duration {
	if resp == nil || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode < http.StatusInternalServerError {
		return NeverRetried
	}
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil {
		return NeverRetried
	}
	return time.Duration(seconds) * time.Second
}

// again is the error of a write that its controller decides again, in place of the answer.
func (w ownerWrite) again(resp *http.Response, again PutOff) error {
	_ = resp.Body.Close()
	return &retryError{what: w.req.Method + " " + w.req.URL.Path, status: resp.Status, PutOff: again}
}

// retryError says that a write is decided again after a while, and once it is known what became of it.
type retryError struct {
	what, status string
	PutOff
}

func (e *retryError) Error() string {
	return fmt.Sprintf("%s failed (%s): the object is reconciled again after %s, as the server asks to wait", e.what, e.status, e.After.Round(time.Millisecond))
}

// Parked implements what consistency.Parked asks for.
func (e *retryError) Parked() bool { return true }

// Again implements what consistency.Again asks for: what else the reconcile has to do is left to a later one.
func (e *retryError) Again() bool { return !e.GoesOn }

var (
	_ consistency.ParkedError = (*retryError)(nil)
	_ consistency.AgainError  = (*retryError)(nil)
)

// createsAnother says that the same request sent again creates another object: the server names it. An update has a
// version, a deletion a name, and an object with a name of its own exists already.
func (w ownerWrite) createsAnother() bool {
	if w.req.Method != http.MethodPost || w.info.Name != "" || w.req.GetBody == nil {
		return false
	}
	object, err := w.sent()
	return err != nil || object.Name == ""
}

// madeAt says that the write was made at this version, so that whatever was committed before it was sent has a lower one. An
// update that changes nothing is answered with the version that the object has: that is then the one that was sent.
func (w ownerWrite) madeAt(rv string) bool {
	switch {
	case w.req.Method == http.MethodPost:
		return w.info.Subresource == ""
	case w.req.Method != http.MethodPut || w.req.GetBody == nil:
		return false
	}
	object, err := w.sent()
	return err == nil && object.ResourceVersion != "" && object.ResourceVersion != rv
}

// alreadyExists is what the server would answer to a creation.
func (w ownerWrite) alreadyExists() (*http.Response, error) {
	status := apierrors.NewAlreadyExists(w.resource(), w.sentMeta().Name).ErrStatus
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	return &http.Response{Status: http.StatusText(http.StatusConflict), StatusCode: http.StatusConflict, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: w.req}, nil
}

// sentMeta is the name, UID and version of the object in the request, as far as it has them.
func (w ownerWrite) sentMeta() metav1.ObjectMeta {
	if w.req.GetBody == nil {
		return metav1.ObjectMeta{}
	}
	object, err := w.sent()
	if err != nil {
		return metav1.ObjectMeta{}
	}
	return object.ObjectMeta
}

// sentIn is the object in a request, which can be read again.
func sentIn(req *http.Request) (*answer, error) {
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	read, err := readBody(body, req.ContentLength)
	//lint:ignore SA5001 there is a body after an error, too, with what was read
	defer read.Close()
	if err != nil {
		return nil, err
	}
	return decode(req.Header.Get("Content-Type"), read.raw())
}

// answer is what a write's response says: which object it has, by its name, namespace, UID and version alone, or for some deletes a Status
// that names it.
type answer struct {
	kind, apiVersion string
	metav1.ObjectMeta
	details *metav1.StatusDetails
	message string
}

// record has the owner's store wait for what a successful answer says.
func (w ownerWrite) record(sent rvtracker.Sent, contentType string, body []byte) error {
	got, err := decode(contentType, body)
	if err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	status := got.kind == "Status" && got.apiVersion == "v1"
	if w.req.Method == http.MethodDelete && w.info.Subresource == "" {
		return w.recordDelete(got)
	}
	if status {
		return nil // That of a subresource such as binding does not tell the object's version.
	}
	w.store.Wrote(w.owner.Name, w.owner.UID, w.resource(), got.ObjectMeta, sent)
	if w.madeAt(got.ResourceVersion) {
		w.store.Fenced(w.resource(), got.ResourceVersion, sent)
	}
	return nil
}

// recordDelete waits for the object to be gone or terminating, by its UID, and besides for the version in the answer,
// if there is one. That alone would not do: the version of an object that is gone already may lie before the deletion
// (kubernetes/kubernetes 138400).
func (w ownerWrite) recordDelete(got *answer) error {
	uid := got.UID
	if got.details != nil {
		uid = got.details.UID
	}
	if uid == "" && got.ResourceVersion == "" || w.info.Name == "" {
		return errors.New("the answer does not say which object is deleted")
	}
	if got.ResourceVersion != "" {
		w.store.WroteAt(w.owner.Name, w.owner.UID, w.resource(), got.ResourceVersion)
	}
	w.store.Deleted(w.owner.Name, w.owner.UID, w.resource(), w.object(), uid)
	return nil
}
