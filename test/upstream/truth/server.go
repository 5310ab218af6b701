// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/cache"
)

// server is an apiserver in the process that has what the caches have, at their versions. It lists metadata: the prover asks for no more
// of a cache that always passes the fence.
type server struct {
	mu     sync.Mutex
	stores map[schema.GroupResource]cache.Store
}

// leases are not served: the breaker of node lifecycle compares them with what the test's clientset has.
var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (s *server) serve(resource schema.GroupResource, store cache.Store) {
	if resource == leases {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stores == nil {
		s.stores = map[schema.GroupResource]cache.Store{}
	}
	s.stores[resource] = store
}

var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	info, err := paths.NewRequestInfo(req)
	if err != nil {
		return nil, err
	}
	resource := schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
	query := req.URL.Query()
	s.mu.Lock()
	store := s.stores[resource]
	s.mu.Unlock()
	switch {
	case store == nil:
		return answer(req, http.StatusNotFound, apierrors.NewNotFound(resource, "").Status())
	case info.Verb != "list" || info.Namespace != "" || len(info.Name) > 0 || query.Get("continue") != "" || query.Get("labelSelector") != "":
		return answer(req, http.StatusBadRequest, apierrors.NewBadRequest(fmt.Sprintf("only whole collections are listed, not %s", req.URL)).Status())
	}
	list, err := listOf(store, query.Get("limit"))
	if err != nil {
		return nil, err
	}
	return answer(req, http.StatusOK, list)
}

func listOf(store cache.Store, limit string) (*metav1.PartialObjectMetadataList, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
	list.ResourceVersion = store.LastStoreSyncResourceVersion()
	objects := store.List()
	if n, err := strconv.Atoi(limit); err == nil && n < len(objects) {
		objects, list.Continue = objects[:n], "more"
	}
	for _, object := range objects {
		m, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		list.Items = append(list.Items, *meta.AsPartialObjectMetadata(m))
	}
	return list, nil
}

func answer(req *http.Request, code int, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw))}, nil
}
