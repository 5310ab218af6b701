// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package aggregated is an apiserver of one resource, to be put behind a kube-apiserver by an APIService. Its resource versions are not
// numbers, as the API allows: abc-1, abc-2 and so on, of which nothing but equality is to be read. It knows lists, watches from any version, get, delete, and
// patches of owner references; it has no consistent reads besides, no bookmarks and no streamed lists.
package aggregated

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
)

// Resource is what it serves, Kind what that is of.
var (
	Resource = schema.GroupVersionResource{Group: "opaque.example.com", Version: "v1", Resource: "widgets"}
	Kind     = Resource.GroupVersion().WithKind("Widget")
)

// Server is a running server. Its methods may be called from any goroutine.
type Server struct {
	listener net.Listener
	server   *http.Server

	mu      sync.Mutex
	objects []metav1.ObjectMeta
	changes []change      // each has the version of its place, beginning with 1
	changed chan struct{} // closed at the next change
	lists   int
	watches int
}

type change struct {
	event watch.EventType
	of    metav1.ObjectMeta
}

// Start starts a server on a loopback port. It runs until Close.
func Start(cert tls.Certificate) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("aggregated: %w", err)
	}
	s := &Server{listener: listener, changed: make(chan struct{})}
	base := "/apis/" + Resource.Group + "/" + Resource.Version
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: Resource.GroupVersion().String(),
			APIResources: []metav1.APIResource{{Name: Resource.Resource, SingularName: "widget", Namespaced: true, Kind: Kind.Kind,
				Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "watch"}}},
		})
	})
	one := base + "/namespaces/{namespace}/" + Resource.Resource + "/{name}"
	mux.HandleFunc("GET "+base+"/"+Resource.Resource, s.collection)
	mux.HandleFunc("GET "+base+"/namespaces/{namespace}/"+Resource.Resource, s.collection)
	mux.HandleFunc("GET "+one, s.get)
	mux.HandleFunc("DELETE "+one, s.remove)
	mux.HandleFunc("PATCH "+one, s.patch)
	s.server = &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}}
	go func() { _ = s.server.ServeTLS(listener, "", "") }()
	return s, nil
}

// Port is where it listens, on loopback.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Close ends it.
func (s *Server) Close() { _ = s.server.Close() }

// Requests are how many lists and watches there were so far.
func (s *Server) Requests() (lists, watches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches
}

// Add makes an object.
func (s *Server) Add(namespace, name string, owners ...metav1.OwnerReference) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uuid.NewUUID(), OwnerReferences: owners}
	s.objects = append(s.objects, object)
	s.note(watch.Added, len(s.objects)-1)
}

// Find returns an object, if it is there.
func (s *Server) Find(namespace, name string) (metav1.ObjectMeta, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.index(namespace, name); i >= 0 {
		return s.objects[i], true
	}
	return metav1.ObjectMeta{}, false
}

func (s *Server) index(namespace, name string) int {
	return slices.IndexFunc(s.objects, func(m metav1.ObjectMeta) bool { return m.Namespace == namespace && m.Name == name })
}

// note gives a change of an object its version. mu must be held.
func (s *Server) note(event watch.EventType, i int) {
	s.objects[i].ResourceVersion = version(len(s.changes) + 1)
	s.changes = append(s.changes, change{event, s.objects[i]})
	close(s.changed)
	s.changed = make(chan struct{})
}

func version(n int) string { return fmt.Sprintf("abc-%d", n) }

// object is an object, or its metadata if that is what was asked for.
func object(r *http.Request, m metav1.ObjectMeta) metav1.PartialObjectMetadata {
	out := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: Kind.Kind, APIVersion: Kind.GroupVersion().String()}, ObjectMeta: m}
	if metadataOnly(r) {
		out.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}
	}
	return out
}

func metadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

func (s *Server) collection(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("watch") == "true" || query.Get("watch") == "1" {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	s.lists++
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: Kind.Kind + "List", APIVersion: Kind.GroupVersion().String()},
		ListMeta: metav1.ListMeta{ResourceVersion: version(len(s.changes))}, Items: []metav1.PartialObjectMetadata{},
	}
	for _, m := range s.objects {
		if of := r.PathValue("namespace"); of == "" || of == m.Namespace {
			list.Items = append(list.Items, object(r, m))
		}
	}
	s.mu.Unlock()
	if metadataOnly(r) {
		list.TypeMeta = metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}
	}
	answer(w, http.StatusOK, list)
}

// watch tells of all changes since a version.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("sendInitialEvents") == "true" {
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is not supported")
		return
	}
	s.mu.Lock()
	next := slices.IndexFunc(s.changes, func(c change) bool { return c.of.ResourceVersion == query.Get("resourceVersion") }) + 1
	known := next > 0 || query.Get("resourceVersion") == version(0)
	s.watches++
	s.mu.Unlock()
	if !known {
		fail(w, http.StatusGone, metav1.StatusReasonExpired, "no such version: "+query.Get("resourceVersion"))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	lines, stream := json.NewEncoder(w), http.NewResponseController(w)
	for {
		s.mu.Lock()
		changes, changed := s.changes[next:], s.changed
		s.mu.Unlock()
		next += len(changes)
		for _, c := range changes {
			if of := r.PathValue("namespace"); of != "" && of != c.of.Namespace {
				continue
			}
			if lines.Encode(map[string]any{"type": c.event, "object": object(r, c.of)}) != nil {
				return
			}
		}
		if stream.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// found calls f, with mu held, for the object that a request is about.
func (s *Server) found(w http.ResponseWriter, r *http.Request, f func(i int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.index(r.PathValue("namespace"), r.PathValue("name"))
	if i < 0 {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no such widget")
		return
	}
	f(i)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	s.found(w, r, func(i int) { answer(w, http.StatusOK, object(r, s.objects[i])) })
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	var options metav1.DeleteOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.found(w, r, func(i int) {
		m := s.objects[i]
		if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != m.UID || p.ResourceVersion != nil && *p.ResourceVersion != m.ResourceVersion) {
			fail(w, http.StatusConflict, metav1.StatusReasonConflict, "it is another one")
			return
		}
		s.note(watch.Deleted, i)
		s.objects = slices.Delete(s.objects, i, i+1)
		answer(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	})
}

// patch takes owner references as a JSON merge patch has them.
func (s *Server) patch(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Content-Type") != string(types.MergePatchType) {
		fail(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "only merge patches")
		return
	}
	var patch struct {
		Metadata struct {
			UID             types.UID               `json:"uid"`
			ResourceVersion string                  `json:"resourceVersion"`
			OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
		} `json:"metadata"`
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.found(w, r, func(i int) {
		m, p := s.objects[i], patch.Metadata
		if p.UID != "" && p.UID != m.UID || p.ResourceVersion != "" && p.ResourceVersion != m.ResourceVersion {
			fail(w, http.StatusConflict, metav1.StatusReasonConflict, "it is another one")
			return
		}
		s.objects[i].OwnerReferences = p.OwnerReferences
		s.note(watch.Modified, i)
		answer(w, http.StatusOK, object(r, s.objects[i]))
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message})
}
