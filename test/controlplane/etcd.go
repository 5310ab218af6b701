// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fresh-kcm/fresh-kcm/test/peerlink"
)

// newEtcd makes the members of etcd. Several talk to each other through peerlink proxies.
func (c *Cluster) newEtcd() error {
	members := max(c.options.EtcdMembers, 1)
	if members > 1 {
		var err error
		if c.peers, err = peerlink.Start(members, c.pki.dir); err != nil {
			return err
		}
	}
	for i := range members {
		comp, err := c.newEtcdMember(i, members)
		if err != nil {
			return err
		}
		c.etcd = append(c.etcd, comp)
	}
	return nil
}

// etcdName is the name of a member, and of its component.
func etcdName(member int) string {
	if member == 0 {
		return etcdBinary
	}
	return etcdBinary + "-" + strconv.Itoa(member)
}

func (c *Cluster) newEtcdMember(member, members int) (*Component, error) {
	name := etcdName(member)
	comp, err := c.newComponent(name, etcdBinary, 2, c.options.Etcd)
	if err != nil {
		return nil, err
	}
	client, err := etcdHTTPClient(c.pki)
	if err != nil {
		return nil, err
	}
	comp.args = func() ([]string, error) {
		clientURL, peerURL := "https://"+comp.ports[0].addr(), "https://"+comp.ports[1].addr()
		advertised, cluster := peerURL, name+"="+peerURL
		if members > 1 {
			c.peers.Serve(member, peerURL)
			advertised, cluster = c.peers.URL(member), ""
			for i := range members {
				cluster += "," + etcdName(i) + "=" + c.peers.URL(i)
			}
			cluster = cluster[1:]
		}
		return []string{
			"--name=" + name,
			"--data-dir=" + c.etcdDataDir(member),
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + advertised,
			"--initial-cluster=" + cluster,
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

func (c *Cluster) etcdDataDir(member int) string {
	return filepath.Join(c.dir, "data", etcdName(member))
}

// startEtcd starts all members: one alone of several does not get ready.
func (c *Cluster) startEtcd(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	for _, member := range c.etcd {
		g.Go(func() error { return member.start(gctx) })
	}
	return g.Wait()
}

// etcdServer returns where the i-th apiserver finds etcd: at one member, as in kubeadm's clusters with an etcd on each
// machine of the control plane.
func (c *Cluster) etcdServer(apiServer int) string {
	return "https://" + c.etcd[apiServer%len(c.etcd)].ports[0].addr()
}

// EtcdMembers returns the members of etcd.
func (c *Cluster) EtcdMembers() []*Component { return slices.Clone(c.etcd) }

// EtcdMetrics returns the page of metrics of the first member of etcd.
func (c *Cluster) EtcdMetrics(ctx context.Context) (string, error) {
	client, err := etcdHTTPClient(c.pki)
	if err != nil {
		return "", err
	}
	page, err := get(ctx, client, c.EtcdURL()+"/metrics")
	return string(page), err
}

// EtcdPeers returns what the members of etcd talk to each other through, nil if there is one only.
func (c *Cluster) EtcdPeers() *peerlink.Links { return c.peers }

// MoveEtcdLeader has a member of etcd lead the others, and waits until it does.
func (c *Cluster) MoveEtcdLeader(ctx context.Context, member int) error {
	client, err := etcdHTTPClient(c.pki)
	if err != nil {
		return err
	}
	moved := false
	return retry(ctx, func(error) bool { return true }, func() error {
		ids, leader := make([]string, len(c.etcd)), ""
		leads := -1
		for i := range c.etcd {
			var status struct {
				Header struct {
					ID string `json:"member_id"`
				} `json:"header"`
				Leader string `json:"leader"`
			}
			if err := post(ctx, client, c.etcdServer(i)+"/v3/maintenance/status", struct{}{}, &status); err != nil {
				return err
			}
			ids[i] = status.Header.ID
			if status.Leader == ids[i] {
				leads, leader = i, ids[i]
			}
		}
		switch {
		case leads == member:
			return nil
		case leads < 0:
			return errors.New("etcd has no leader")
		case !moved:
			moved = true
			if err := post(ctx, client, c.etcdServer(leads)+"/v3/maintenance/transfer-leadership", map[string]string{"targetID": ids[member]}, nil); err != nil {
				moved = false
				return err
			}
		}
		return fmt.Errorf("etcd is led by %s, not by %s", leader, ids[member])
	})
}

// WithEtcdStopped ends the apiservers and etcd, calls f with etcd's data directory, and starts them
// again on the same addresses, in whatever state f leaves the directory. To rewind a cluster: copy the
// directory away in one call and back in another, later one. The other components stay up and see
// their connections drop; a kube-controller-manager exits if the apiservers, which need three seconds to
// start, are away for longer than its renew deadline. After an error from f nothing is started again.
// Only for an etcd of one member.
func (c *Cluster) WithEtcdStopped(ctx context.Context, f func(dataDir string) error) error {
	if len(c.etcd) > 1 {
		return errors.New("etcd has several members")
	}
	servers := c.APIServers()
	for _, s := range servers {
		// Killed: a graceful end would wait for the clients, which have no reason to leave.
		if err := s.Kill(); err != nil {
			return err
		}
	}
	if err := c.etcd[0].Stop(); err != nil {
		return err
	}
	if err := f(c.etcdDataDir(0)); err != nil {
		return fmt.Errorf("changing etcd's data: %w", err)
	}
	if err := c.etcd[0].Restart(ctx); err != nil {
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

// post sends a question of etcd's gRPC gateway and reads the answer, unless out is nil.
func post(ctx context.Context, client *http.Client, url string, in, out any) error {
	question, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, err := ask(ctx, client, url, question)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("POST %s: %w", url, err)
	}
	return nil
}

// ask sends a question of etcd's gRPC gateway. The answer has to be closed; any status but 200 is an error.
func ask(ctx context.Context, client *http.Client, url string, question []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("POST %s: %s", url, resp.Status)
	}
	return resp, nil
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
