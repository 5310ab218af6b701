// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
)

const (
	defaultListen      = "127.0.0.1:0"
	defaultJournalSize = 4096
)

// Options says what a Proxy stands between.
type Options struct {
	// Listen is the loopback address to serve on; empty means 127.0.0.1:0.
	Listen string
	// ServingCert is shown to the client. tls.X509KeyPair makes one from PEM.
	ServingCert tls.Certificate
	// ClientCAs verify the client's certificate. Without them no client certificate is asked for, and a
	// request without an Authorization header is anonymous.
	ClientCAs *x509.CertPool
	// ClientCert is the client's own identity, shown to the backend for requests that authenticated here by
	// a client certificate with the same subject. A certificate with any other subject is refused, because
	// forwarding it would turn one user into another.
	ClientCert *tls.Certificate
	// Backends are the apiservers the client can be moved between; the first one is used first.
	Backends []Backend
	// JournalSize is how many interventions the journal keeps; 0 means 4096.
	JournalSize int
}

// Backend is one kube-apiserver.
type Backend struct {
	// Name is how SwitchBackend and the journal call it.
	Name string
	// URL is its https address, without a path.
	URL string
	// CAs verify its serving certificate.
	CAs *x509.CertPool
}

func (o *Options) complete() error {
	if o.Listen == "" {
		o.Listen = defaultListen
	}
	if o.JournalSize == 0 {
		o.JournalSize = defaultJournalSize
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("listen address %q: %w", o.Listen, err)
	}
	if addr, err := netip.ParseAddr(host); err != nil || !addr.IsLoopback() {
		return fmt.Errorf("listen address %q is not a loopback IP address", o.Listen)
	}
	if o.JournalSize < 0 {
		return fmt.Errorf("journal size %d is negative", o.JournalSize)
	}
	if len(o.ServingCert.Certificate) == 0 {
		return errors.New("no serving certificate given")
	}
	if o.ClientCert != nil {
		if err := parseLeaf(o.ClientCert); err != nil {
			return fmt.Errorf("client certificate: %w", err)
		}
	}
	if len(o.Backends) == 0 {
		return errors.New("no backend given")
	}
	seen := map[string]bool{}
	for _, b := range o.Backends {
		if b.Name == "" || seen[b.Name] {
			return fmt.Errorf("backend name %q is empty or used twice", b.Name)
		}
		seen[b.Name] = true
		u, err := url.Parse(b.URL)
		if err != nil {
			return fmt.Errorf("backend %q: %w", b.Name, err)
		}
		if u.Scheme != "https" || u.Host == "" || (u.Path != "" && u.Path != "/") {
			return fmt.Errorf("backend %q: URL %q is not of the form https://host:port", b.Name, b.URL)
		}
	}
	return nil
}

// parseLeaf fills in the parsed leaf on a copy, so that the caller's certificate is not written to.
func parseLeaf(cert *tls.Certificate) error {
	if len(cert.Certificate) == 0 {
		return errors.New("empty")
	}
	_, err := x509.ParseCertificate(cert.Certificate[0])
	return err
}
