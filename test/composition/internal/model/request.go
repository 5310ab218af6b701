// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Request is one that a client sent.
type Request struct {
	*Resource
	// Verb is get, list, watch, create, update, patch, delete or deletecollection.
	Verb                         string
	Namespace, Name, Subresource string
	// Agent is the client's name for itself.
	Agent string
	// Sent is when the client sent it, Arrived when the server began with it.
	Sent, Arrived time.Time
	// Owner is the object for which the write is made: a pod's controller, a ReplicaSet's Deployment, or the object itself.
	Owner Owner
	// Code is the answer's status; 0 if the answer was lost. Changed says that the write changed something.
	Code    int
	Changed bool

	query       url.Values
	body        []byte
	contentType string
	encoding    encoding
}

// Owner is an object that a controller reconciles.
type Owner struct {
	Kind string
	types.NamespacedName
}

func (o Owner) String() string { return o.Kind + " " + o.NamespacedName.String() }

// Write says that it is one.
func (r *Request) Write() bool { return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" }

func (r *Request) String() string {
	var path strings.Builder
	path.WriteString(r.GroupVersionResource.Resource)
	for _, part := range []string{r.Subresource, r.Namespace, r.Name} {
		if part != "" {
			path.WriteString("/" + part)
		}
	}
	return fmt.Sprintf("%s %s for %s: %d", r.Verb, path.String(), r.Owner, r.Code)
}

func parse(req *http.Request) (*Request, error) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	r := &Request{Agent: req.UserAgent(), query: req.URL.Query(), contentType: req.Header.Get("Content-Type"), encoding: negotiate(req.Header.Get("Accept")), Sent: time.Now()}
	gv := schema.GroupVersion{}
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return nil, fmt.Errorf("no such path: %s", req.URL.Path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "finalize" && parts[2] != "status" {
		r.Namespace, parts = parts[1], parts[2:]
	}
	for _, known := range all {
		if known.GroupVersionResource == gv.WithResource(parts[0]) {
			r.Resource = known
		}
	}
	if r.Resource == nil {
		return nil, fmt.Errorf("no such resource: %s", req.URL.Path)
	}
	if len(parts) > 1 {
		r.Name = parts[1]
	}
	if len(parts) > 2 {
		r.Subresource = parts[2]
	}
	r.Verb = map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[req.Method]
	switch {
	case req.Method == http.MethodGet && r.query.Get("watch") != "" && r.query.Get("watch") != "false":
		r.Verb = "watch"
	case req.Method == http.MethodGet && r.Name == "":
		r.Verb = "list"
	case req.Method == http.MethodGet:
		r.Verb = "get"
	case req.Method == http.MethodDelete && r.Name == "":
		r.Verb = "deletecollection"
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("reading the body: %w", err)
		}
		r.body = body
	}
	return r, nil
}

// Lists reports whether the request is for all objects that there are: a list, or a watch that begins with them.
func (r *Request) Lists() bool {
	return r.Verb == "list" || r.Verb == "watch" && r.query.Get("sendInitialEvents") == "true"
}

func (r *Request) number(name string) int64 {
	n, _ := strconv.ParseInt(r.query.Get(name), 10, 64)
	return n
}

// refusal is a Status as an error.
type refusal struct {
	metav1.Status
	retryAfter int
}

func (e *refusal) Error() string { return e.Message }

// RefuseFor is a refusal with 403 that has a cause.
func RefuseFor(cause metav1.CauseType, message string) error {
	r := Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, message, 0).(*refusal)
	r.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: cause, Message: message}}}
	return r
}

// Refuse is an answer that the server gives in place of doing what it was asked.
func Refuse(code int, reason metav1.StatusReason, message string, retryAfterSeconds int) error {
	s := metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message}
	s.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	if retryAfterSeconds > 0 {
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(retryAfterSeconds)}
	}
	return &refusal{s, retryAfterSeconds}
}
