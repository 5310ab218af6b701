// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook is an admission webhook that is in somebody's way: it refuses, or takes its time.
package webhook

import (
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// The paths of a webhook's URL say what it does.
const (
	// TooManyRequests refuses with status 429.
	TooManyRequests = "/too-many-requests"
	// Slow admits after Delay.
	Slow = "/slow"
	// Delay is how long that takes.
	Delay = 2 * time.Second
)

// Server is a running webhook.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// Start starts a webhook on a loopback port. It runs until Close.
func Start(cert tls.Certificate) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc(TooManyRequests, func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, &admissionv1.AdmissionResponse{Result: &metav1.Status{
			Status: metav1.StatusFailure, Reason: metav1.StatusReasonTooManyRequests, Code: http.StatusTooManyRequests, Message: "not now",
		}})
	})
	mux.HandleFunc(Slow, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(Delay):
			answer(w, r, &admissionv1.AdmissionResponse{Allowed: true})
		case <-r.Context().Done():
		}
	})
	s := &Server{listener, &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}}}
	go func() { _ = s.server.ServeTLS(listener, "", "") }()
	return s, nil
}

// URL returns the address that does what the path says.
func (s *Server) URL(path string) string { return "https://" + s.listener.Addr().String() + path }

// Close ends it.
func (s *Server) Close() error { return s.server.Close() }

func answer(w http.ResponseWriter, r *http.Request, response *admissionv1.AdmissionResponse) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	response.UID = review.Request.UID
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		klog.FromContext(r.Context()).V(2).Info("Answer was not taken", "err", err)
	}
}
