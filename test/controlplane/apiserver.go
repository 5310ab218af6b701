// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/rest"
)

const serviceCIDR = "10.96.0.0/16"

// firstServiceIP is the address that the apiserver gives to the service "kubernetes".
var firstServiceIP = net.IPv4(10, 96, 0, 1)

// APIServer is a kube-apiserver. Several on one etcd let one of them be paused or left behind.
type APIServer struct {
	*Component
	cluster *Cluster
	number  int
}

// URL returns its address, which restarts do not change.
func (s *APIServer) URL() string { return "https://" + s.ports[0].addr() }

// AdminConfig returns a client of this very apiserver, in group system:masters and without rate limit.
func (s *APIServer) AdminConfig() *rest.Config { return s.cluster.adminConfig(s.URL()) }

// AuditLogPath returns the file with one JSON event, at Metadata level, for every request for a
// resource but kwok's and the apiserver's own; see ReadAudit. A request that has been answered is in it. With Options.NoAudit there is none.
func (s *APIServer) AuditLogPath() string {
	return filepath.Join(s.cluster.dir, "logs", s.name+"-audit.log")
}

// StartAPIServer starts one more kube-apiserver and waits for it to be ready.
func (c *Cluster) StartAPIServer(ctx context.Context, options ProcessOptions) (*APIServer, error) {
	c.mu.Lock()
	number := len(c.apiServers)
	name := kubeAPIServer + "-" + strconv.Itoa(number)
	comp, err := c.newComponent(name, kubeAPIServer, 1, options)
	if err != nil {
		c.mu.Unlock()
		return nil, err
	}
	s := &APIServer{Component: comp, cluster: c, number: number}
	c.apiServers = append(c.apiServers, s)
	c.mu.Unlock()

	comp.args = func() ([]string, error) { return s.args(), nil }
	comp.ready = func(ctx context.Context) error { return c.probe(ctx, s.URL()+"/readyz") }
	if err := comp.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *APIServer) args() []string {
	c, p := s.cluster, s.cluster.pki
	args := []string{
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.ports[0].port),
		"--advertise-address=127.0.0.1",
		// A loopback address is no valid endpoint of the service "kubernetes".
		"--endpoint-reconciler-type=none",
		"--etcd-servers=" + c.etcdServer(s.number),
		"--etcd-cafile=" + p.path("etcd-ca.crt"),
		"--etcd-certfile=" + p.path("apiserver-etcd-client.crt"),
		"--etcd-keyfile=" + p.path("apiserver-etcd-client.key"),
		"--tls-cert-file=" + p.path("serving.crt"),
		"--tls-private-key-file=" + p.path("serving.key"),
		"--client-ca-file=" + p.path("ca.crt"),
		"--token-auth-file=" + p.path("tokens.csv"),
		"--authorization-mode=Node,RBAC",
		"--requestheader-client-ca-file=" + p.path("front-proxy-ca.crt"),
		"--requestheader-allowed-names=" + frontProxyUser,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.path("front-proxy-client.crt"),
		"--proxy-client-key-file=" + p.path("front-proxy-client.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.path("service-account.key"),
		"--service-account-signing-key-file=" + p.path("service-account.key"),
		"--service-cluster-ip-range=" + serviceCIDR,
	}
	if !c.options.NoAudit {
		args = append(args,
			"--audit-policy-file="+c.auditPolicyPath(),
			"--audit-log-path="+s.AuditLogPath(),
			// Blocking, so that a request that has been answered is in the log.
			"--audit-log-mode=blocking",
			// In MB. By default a log is put aside at 100 MB, and what is in it then is not read.
			"--audit-log-maxsize=1048576",
		)
	}
	return args
}

// probe succeeds when a page of one of the cluster's servers answers with 200.
func (c *Cluster) probe(ctx context.Context, url string) error {
	_, err := c.get(ctx, url)
	return err
}

// get fetches a page from one of the cluster's servers as admin, over a connection of its own.
func (c *Cluster) get(ctx context.Context, url string) ([]byte, error) {
	c.httpOnce.Do(func() {
		config, err := rest.TLSConfigFor(c.adminConfig(""))
		if err != nil {
			c.httpErr = fmt.Errorf("admin client: %w", err)
			return
		}
		c.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
	})
	if c.httpErr != nil {
		return nil, c.httpErr
	}
	return get(ctx, c.http, url)
}
