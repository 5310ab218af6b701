// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"maps"
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

var requestInfos = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// Request is what faults and counters know of a client's request.
type Request struct {
	// Verb is the Kubernetes verb (get, list, watch, create, update, patch, delete, deletecollection), or the
	// HTTP method in lower case where Resource is empty.
	Verb        string
	Resource    schema.GroupResource
	Subresource string
	Namespace   string
	Name        string
	// UserAgent is the first token of the User-Agent header.
	UserAgent string
	// Client is the last part of the User-Agent header, which tells the clients of one process apart: what
	// follows the last space or slash, such as shared-informers.
	Client string
	// ResourceVersion is the query parameter, as the client sent it.
	ResourceVersion string
	// SendInitialEvents says that a watch starts with the whole collection (KEP-3157 WatchList).
	SendInitialEvents bool
}

func parseRequest(r *http.Request) (Request, error) {
	info, err := requestInfos.NewRequestInfo(r)
	if err != nil {
		return Request{}, err
	}
	q := r.URL.Query()
	agent, _, _ := strings.Cut(r.UserAgent(), " ")
	client := r.UserAgent()
	client = client[strings.LastIndexAny(client, " /")+1:]
	req := Request{
		Verb:              info.Verb,
		Subresource:       info.Subresource,
		Namespace:         info.Namespace,
		Name:              info.Name,
		UserAgent:         agent,
		Client:            client,
		ResourceVersion:   q.Get("resourceVersion"),
		SendInitialEvents: q.Get("sendInitialEvents") == "true",
	}
	if info.IsResourceRequest {
		req.Resource = schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	}
	return req, nil
}

// RequestKey is what requests are counted by.
type RequestKey struct {
	Verb        string
	Resource    schema.GroupResource
	Subresource string
	UserAgent   string
	// Code is the HTTP status the client was given; 0 if the stream was cut before there was one.
	Code int
}

// Counts is a copy of the request counters.
type Counts map[RequestKey]int64

// Since returns the requests counted after earlier was taken.
func (c Counts) Since(earlier Counts) Counts {
	out := Counts{}
	for k, n := range c {
		if d := n - earlier[k]; d != 0 {
			out[k] = d
		}
	}
	return out
}

// Sum adds up the counters for which match is true; a nil match counts all.
func (c Counts) Sum(match func(RequestKey) bool) int64 {
	var sum int64
	for k, n := range c {
		if match == nil || match(k) {
			sum += n
		}
	}
	return sum
}

type counter struct {
	mu     sync.Mutex
	counts Counts
}

func (c *counter) add(r Request, code int) {
	k := RequestKey{Verb: r.Verb, Resource: r.Resource, Subresource: r.Subresource, UserAgent: r.UserAgent, Code: code}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[k]++
}

func (c *counter) snapshot() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// countingWriter counts a request when its status is known, so that a watch is counted when it opens.
type countingWriter struct {
	http.ResponseWriter
	counted bool
	count   func(code int)
}

func (w *countingWriter) WriteHeader(code int) {
	if code >= 200 {
		w.once(code)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.once(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

func (w *countingWriter) once(code int) {
	if !w.counted {
		w.counted = true
		w.count(code)
	}
}

// Unwrap lets http.ResponseController flush through this writer.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
