// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package loadmetric is an API of external metrics with one metric, the load of a workload, that a test sets.
package loadmetric

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// Name is the metric's, in every namespace.
const Name = "load"

// GroupVersion is what an APIService for the server is of.
var GroupVersion = schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}

// Server is a running API.
type Server struct {
	listener net.Listener
	server   *http.Server
	load     atomic.Int64
	reads    atomic.Int64
}

// Start starts an API on a loopback port, whose metric has this value. It runs until Close.
func Start(cert tls.Certificate, load int64) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener}
	s.load.Store(load)
	root := "/apis/" + GroupVersion.String()
	mux := http.NewServeMux()
	mux.HandleFunc(root, func(w http.ResponseWriter, r *http.Request) {
		// The client of the metrics asks for them by name.
		answer(w, r, &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: GroupVersion.String(), APIResources: []metav1.APIResource{}})
	})
	mux.HandleFunc(root+"/namespaces/", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/"+Name) {
			http.NotFound(w, r)
			return
		}
		answer(w, r, map[string]any{
			"kind": "ExternalMetricValueList", "apiVersion": GroupVersion.String(), "metadata": map[string]any{},
			"items": []any{map[string]any{"metricName": Name, "metricLabels": map[string]string{}, "timestamp": metav1.Now(), "value": strconv.FormatInt(s.load.Load(), 10)}},
		})
		s.reads.Add(1)
	})
	s.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}}
	go func() { _ = s.server.ServeTLS(listener, "", "") }()
	return s, nil
}

// Port is on the loopback address.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Set sets the metric, and returns how often it has been read by then. One of these reads may yet be under way.
func (s *Server) Set(load int64) int64 {
	s.load.Store(load)
	return s.reads.Load()
}

// Reads is how often the metric has been read.
func (s *Server) Reads() int64 { return s.reads.Load() }

// Close ends it.
func (s *Server) Close() error { return s.server.Close() }

func answer(w http.ResponseWriter, r *http.Request, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		klog.FromContext(r.Context()).V(2).Info("Answer was not taken", "err", err)
	}
}
