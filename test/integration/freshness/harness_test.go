// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/fresh-kcm/fresh-kcm/pkg/freshness"
	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

const requireBinariesEnv = "FRESH_KCM_REQUIRE_BINARIES"

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// cluster is a control plane without controllers: nobody but the test writes configmaps or secrets.
type cluster struct {
	*controlplane.Cluster
	client  kubernetes.Interface
	created atomic.Int64
}

func startCluster(t *testing.T, apiservers int) *cluster {
	t.Helper()
	dir, err := controlplane.FindBinDir()
	if err == nil {
		err = controlplane.CheckBinaries(dir)
	}
	if err != nil {
		if os.Getenv(requireBinariesEnv) == "1" {
			t.Fatal(err)
		}
		t.Skipf("not run, the control plane's binaries are missing: %v", err)
	}
	c, err := controlplane.Start(t.Context(), controlplane.Options{APIServers: apiservers})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			c.Keep()
		}
		require.NoError(t, c.Stop(context.Background()))
	})
	return &cluster{Cluster: c, client: kubernetes.NewForConfigOrDie(c.AdminConfig())}
}

// proxy stands between one informer and the first apiserver.
func (c *cluster) proxy(t *testing.T) (*faultproxy.Proxy, *rest.Config) {
	t.Helper()
	admin := c.AdminConfig()
	cas := x509.NewCertPool()
	require.True(t, cas.AppendCertsFromPEM(c.CAData()))
	certPEM, keyPEM, err := c.ServingCert("faultproxy")
	require.NoError(t, err)
	serving, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	client, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	require.NoError(t, err)
	p, err := faultproxy.Start(t.Context(), faultproxy.Options{
		ServingCert: serving, ClientCAs: cas, ClientCert: &client,
		Backends: []faultproxy.Backend{{Name: "first", URL: c.APIServers()[0].URL(), CAs: cas}},
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	config := rest.CopyConfig(admin)
	config.Host = p.URL()
	return p, config
}

// inform runs client-go's own informer of a resource and waits for its first sync.
func (c *cluster) inform(t *testing.T, config *rest.Config, gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	t.Helper()
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
	generic, err := factory.ForResource(gvr)
	require.NoError(t, err)
	informer := generic.Informer()
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	require.True(t, cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced))
	return informer
}

func (c *cluster) prover(t *testing.T, opts freshness.Options, gvr schema.GroupVersionResource, informer cache.SharedIndexInformer) *freshness.Prover {
	t.Helper()
	if opts.Config == nil {
		opts.Config = c.AdminConfig()
	}
	opts.Config.UserAgent = "kube-controller-manager/test"
	p, err := freshness.New(opts)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	tracker := rvtracker.New(rvtracker.Options{})
	go tracker.Run(t.Context())
	p.Track(gvr, informer.GetIndexer(), tracker.Register(gvr.GroupResource(), informer.GetIndexer()))
	return p
}

// write creates a configmap and returns its RV.
func (c *cluster) write(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("cm-%d", c.created.Add(1))
	cm, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return cm.ResourceVersion
}

// disturb moves etcd on by writes to another resource.
func (c *cluster) disturb(t *testing.T, n int) {
	t.Helper()
	for range n {
		name := fmt.Sprintf("other-%d", c.created.Add(1))
		_, err := c.client.CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func storeRV(informer cache.SharedIndexInformer) string {
	return informer.GetIndexer().LastStoreSyncResourceVersion()
}

func reached(informer cache.SharedIndexInformer, rv string) bool {
	c, err := resourceversion.CompareResourceVersion(storeRV(informer), rv)
	return err == nil && c >= 0
}

func waitReached(t *testing.T, informer cache.SharedIndexInformer, rv string) {
	t.Helper()
	require.Eventually(t, func() bool { return reached(informer, rv) }, 3*time.Minute, time.Millisecond)
}

func prove(t *testing.T, p *freshness.Prover, gvr schema.GroupVersionResource, asOf time.Time) (freshness.Proof, time.Duration) {
	t.Helper()
	begin := time.Now()
	proof, err := p.Prove(t.Context(), gvr, asOf)
	require.NoError(t, err)
	return proof, time.Since(begin)
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(len(d)-1, int(q*float64(len(d))))]
}
