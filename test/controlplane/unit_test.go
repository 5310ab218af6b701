// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

func TestPKI(t *testing.T) {
	p, err := newPKI(t.TempDir())
	require.NoError(t, err)
	pool := func(a *authority) *x509.CertPool {
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(a.certPEM()))
		return pool
	}
	load := func(name string) *x509.Certificate {
		pair, err := tls.LoadX509KeyPair(p.path(name+".crt"), p.path(name+".key"))
		require.NoError(t, err)
		return pair.Leaf
	}
	server, client := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, tc := range []struct {
		name, dnsName string
		authority     *authority
		usages        []x509.ExtKeyUsage
	}{
		{"serving", "127.0.0.1", p.cluster, server},
		{"serving", "10.96.0.1", p.cluster, server},
		{"serving", "kubernetes.default.svc", p.cluster, server},
		{"etcd", "127.0.0.1", p.etcd, server},
		{"etcd", "", p.etcd, client},
		{"apiserver-etcd-client", "", p.etcd, client},
		{"front-proxy-client", "", p.front, client},
	} {
		_, err := load(tc.name).Verify(x509.VerifyOptions{Roots: pool(tc.authority), DNSName: tc.dnsName, KeyUsages: tc.usages})
		require.NoError(t, err, "%+v", tc)
	}
	_, err = load("etcd").Verify(x509.VerifyOptions{Roots: pool(p.cluster)})
	require.Error(t, err, "the authorities are apart")

	pair, err := p.cluster.client("jane", "a", "b")
	require.NoError(t, err)
	leaf, err := tls.X509KeyPair(pair.cert, pair.key)
	require.NoError(t, err)
	require.Equal(t, "jane", leaf.Leaf.Subject.CommonName)
	require.Equal(t, []string{"a", "b"}, leaf.Leaf.Subject.Organization)

	info, err := os.Stat(p.path("service-account.key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func testCluster(t *testing.T) *Cluster {
	c := &Cluster{options: Options{Dir: t.TempDir()}, binDir: "/bin-dir"}
	require.NoError(t, c.makeDirs())
	var err error
	c.pki, err = newPKI(filepath.Join(c.dir, "pki"))
	require.NoError(t, err)
	c.admin, err = c.pki.cluster.client(adminUser, mastersGroup)
	require.NoError(t, err)
	require.NoError(t, c.newEtcd())
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	return c
}

func TestArgs(t *testing.T) {
	c := testCluster(t)
	comp, err := c.newComponent("kube-apiserver-0", kubeAPIServer, 1, ProcessOptions{})
	require.NoError(t, err)
	_, err = c.newComponent("kube-apiserver-0", kubeAPIServer, 1, ProcessOptions{})
	require.ErrorContains(t, err, "already")
	s := &APIServer{Component: comp, cluster: c}
	require.Contains(t, s.args(), "--audit-log-path="+s.AuditLogPath())
	require.Contains(t, s.args(), "--etcd-servers=https://"+c.etcd[0].addrs()[0])
	c.options.NoAudit = true
	require.NotContains(t, strings.Join(s.args(), " "), "audit")

	etcdArgs, err := c.etcd[0].args()
	require.NoError(t, err)
	for _, args := range [][]string{s.args(), etcdArgs} {
		for _, arg := range args {
			require.NotContains(t, arg, "0.0.0.0")
		}
	}

	path, err := c.writeKubeconfig("someone", "https://127.0.0.1:1", c.CAData(), credentials{token: "secret"})
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	require.NoError(t, err)
	require.Equal(t, "secret", config.BearerToken)
	require.Equal(t, "https://127.0.0.1:1", config.Host)
}

func TestArms(t *testing.T) {
	require.Equal(t, "/b/kube-controller-manager", ArmP.Binary("/b"))
	require.Equal(t, "/b/upstream/kube-controller-manager", ArmU0.Binary("/b"))
	for _, tc := range []struct {
		arm   Arm
		extra map[string]bool
		want  string
	}{
		{ArmU1, nil, ""},
		{ArmP, nil, "--feature-gates=MonitorInformerStaleness=true,StaleControllerConsistency=true"},
		{ArmP, map[string]bool{"MonitorInformerStaleness": false}, "--feature-gates=MonitorInformerStaleness=false,StaleControllerConsistency=true"},
	} {
		c := &Component{fixedGates: tc.arm.FeatureGates(), options: ProcessOptions{FeatureGates: tc.extra}}
		require.Equal(t, tc.want, c.gatesFlag())
	}
	ArmP.FeatureGates()["Other"] = true
	require.NotContains(t, ArmP.FeatureGates(), "Other")
	for gate, on := range ArmU0.FeatureGates() {
		require.False(t, on, gate)
	}
	_, err := testCluster(t).StartKCM(t.Context(), KCMOptions{Arm: "U2"})
	require.ErrorContains(t, err, "unknown arm")
}

func TestMissingBinary(t *testing.T) {
	dir := t.TempDir()
	err := CheckBinaries(dir, ArmU1, ArmP)
	for _, want := range []string{"/etcd: run \"make build\"", "/upstream/kube-controller-manager: run \"make build\"", dir + "/kube-controller-manager: run \"make build\""} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "\n")
	_, err = Start(t.Context(), Options{BinDir: dir})
	require.ErrorContains(t, err, "make build")
}

func TestVersionPattern(t *testing.T) {
	for out, want := range map[string]string{
		"Kubernetes v1.37.0\n":                         "v1.37.0",
		"Kubernetes v1.37.0-fresh.1+abc\n":             "v1.37.0-fresh.1+abc",
		"etcd Version: 3.7.3\nGit SHA: Not provided\n": "3.7.3",
		"kwok version 0.8.0 go1.26.8 (linux/amd64)":    "0.8.0",
	} {
		require.Equal(t, want, versionPattern.FindString(out))
	}
}

func TestPortsAreLeasedOnce(t *testing.T) {
	seen := sets.New[int]()
	for range 50 {
		lease, err := leasePort()
		require.NoError(t, err)
		defer lease.release()
		require.False(t, seen.Has(lease.port))
		seen.Insert(lease.port)
		l, err := net.Listen("tcp", lease.addr())
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

func TestReadAudit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	first := `{"stage":"ResponseComplete","verb":"get","user":{"username":"system:serviceaccount:kube-system:node-controller"},"objectRef":{"resource":"leases","name":"n"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-02T03:04:05.678901Z"}` + "\n"
	second := `{"verb":"list","user":{"username":"jane"}}` + "\n"
	require.NoError(t, os.WriteFile(path, []byte(first+second[:10]), 0o600))
	var got []AuditEvent
	visit := func(e AuditEvent) { got = append(got, e) }
	offset, err := ReadAudit(path, 0, visit)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "node-controller", got[0].ServiceAccount())
	require.Equal(t, 200, got[0].ResponseStatus.Code)
	require.Equal(t, 678901000, got[0].RequestReceivedTimestamp.Nanosecond())

	require.NoError(t, os.WriteFile(path, []byte(first+second), 0o600))
	_, err = ReadAudit(path, offset, visit)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Empty(t, got[1].ServiceAccount())
}

func TestStages(t *testing.T) {
	c := testCluster(t)
	path, err := c.writeStages()
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	documents := strings.Split(string(data), "\n---\n")
	require.Len(t, documents, 5)
	for _, document := range documents {
		var stage struct {
			APIVersion, Kind string
			Spec             struct{ ResourceRef struct{ Kind string } }
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &stage))
		require.Equal(t, "kwok.x-k8s.io/v1alpha1", stage.APIVersion)
		require.Equal(t, "Stage", stage.Kind)
		require.Contains(t, []string{"Node", "Pod"}, stage.Spec.ResourceRef.Kind)
	}
}

func TestComponentThatNeverGetsReady(t *testing.T) {
	c := testCluster(t)
	comp, err := c.newComponent("broken", "sh", 0, ProcessOptions{Binary: "/bin/sh"})
	require.NoError(t, err)
	comp.args = func() ([]string, error) { return []string{"-c", "echo one; echo two; exit 3"}, nil }
	comp.ready = func(context.Context) error { return os.ErrNotExist }
	err = comp.start(t.Context())
	var failure *ComponentError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "exit status 3", failure.Exit)
	require.Equal(t, []string{"one", "two"}, failure.LogTail)
	require.NotZero(t, failure.PID)

	comp.args = func() ([]string, error) { return []string{"-c", "echo bind: address already in use; exit 1"}, nil }
	require.ErrorIs(t, comp.start(t.Context()), ErrAddressInUse)

	comp.args = func() ([]string, error) { return []string{"-c", "exec sleep 60"}, nil }
	ctx, cancel := context.WithCancel(t.Context())
	comp.ready = func(context.Context) error { cancel(); return os.ErrNotExist }
	err = comp.start(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, os.ErrNotExist, "the last probe is told")
	require.Zero(t, comp.PID())
}
