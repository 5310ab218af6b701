// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
)

func (c *Cluster) newEtcd() (*Component, error) {
	comp, err := c.newComponent("etcd", etcdBinary, 2, c.options.Etcd)
	if err != nil {
		return nil, err
	}
	client, err := etcdHTTPClient(c.pki)
	if err != nil {
		return nil, err
	}
	comp.args = func() ([]string, error) {
		clientURL, peerURL := "https://"+comp.ports[0].addr(), "https://"+comp.ports[1].addr()
		return []string{
			"--name=etcd",
			"--data-dir=" + c.etcdDataDir(),
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=etcd=" + peerURL,
			"--client-cert-auth",
			"--cert-file=" + c.pki.path("etcd.crt"),
			"--key-file=" + c.pki.path("etcd.key"),
			"--trusted-ca-file=" + c.pki.path("etcd-ca.crt"),
			"--peer-client-cert-auth",
			"--peer-cert-file=" + c.pki.path("etcd.crt"),
			"--peer-key-file=" + c.pki.path("etcd.key"),
			"--peer-trusted-ca-file=" + c.pki.path("etcd-ca.crt"),
			// A killed process loses nothing by it, only a power cut would.
			"--unsafe-no-fsync",
			"--log-level=warn",
		}, nil
	}
	comp.ready = func(ctx context.Context) error {
		body, err := get(ctx, client, "https://"+comp.ports[0].addr()+"/health")
		if err != nil {
			return err
		}
		if !strings.Contains(string(body), `"true"`) {
			return fmt.Errorf("etcd is not healthy: %s", body)
		}
		return nil
	}
	return comp, nil
}

func (c *Cluster) etcdDataDir() string { return filepath.Join(c.dir, "data", "etcd") }

// WithEtcdStopped ends the apiservers and etcd, calls f with etcd's data directory, and starts them
// again on the same addresses, in whatever state f leaves the directory. To rewind a cluster: copy the
// directory away in one call and back in another, later one. The other components stay up and see
// their connections drop; a kube-controller-manager exits if the apiservers, which need three seconds to
// start, are away for longer than its renew deadline. After an error from f nothing is started again.
func (c *Cluster) WithEtcdStopped(ctx context.Context, f func(dataDir string) error) error {
	servers := c.APIServers()
	for _, s := range servers {
		// Killed: a graceful end would wait for the clients, which have no reason to leave.
		if err := s.Kill(); err != nil {
			return err
		}
	}
	if err := c.etcd.Stop(); err != nil {
		return err
	}
	if err := f(c.etcdDataDir()); err != nil {
		return fmt.Errorf("changing etcd's data: %w", err)
	}
	if err := c.etcd.Restart(ctx); err != nil {
		return err
	}
	for _, s := range servers {
		if err := s.Restart(ctx); err != nil {
			return err
		}
	}
	return nil
}

func etcdHTTPClient(p *pki) (*http.Client, error) {
	kp, err := p.etcd.client("health-check")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(kp.cert, kp.key)
	if err != nil {
		return nil, fmt.Errorf("etcd health client: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.etcd.cert)
	// No connection is kept: one to a process that has been restarted since would only be in the way.
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}}, nil
}

// get returns the body of a page; any status but 200 is an error.
func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %.500s", url, resp.Status, body)
	}
	return body, nil
}
