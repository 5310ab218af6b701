// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcd returns a client of the cluster's etcd, to see what is stored and to compact it.
func (c *cluster) etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	file := func(name string) string { return filepath.Join(c.pkiDir(), name) }
	tls, err := transport.TLSInfo{
		CertFile: file("apiserver-etcd-client.crt"), KeyFile: file("apiserver-etcd-client.key"), TrustedCAFile: file("etcd-ca.crt"),
	}.ClientConfig()
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.EtcdURL()}, TLS: tls, Context: t.Context()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
