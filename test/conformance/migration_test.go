// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

const (
	migrated = 60
	// heldFor is how long the migration has to go wrong while its cache stands still.
	heldFor = 4 * time.Second
)

// TestMigration: customresources-versioning, "stored versions", carried out by our kube-controller-manager with
// both gates on. Its watch of the resource is held back while objects are changed, deleted and created; it must
// not migrate from the cache that lacks this, and in the end nothing is lost, nothing has come back, nothing is
// stored in the old version, and that can be removed.
//
//conformance:kep-5504 Motivation: a storage version migration knows by comparing when all that is older is done
//conformance:crd-versions StoredVersions: a migration brings all objects to the new version, and none is lost
func TestMigration(t *testing.T) {
	c := own(t, controlplane.Options{})
	d := newDefinition(t, c, "Gadget", versionOf("v1", true, true, 1000), versionOf("v2", true, false, 1000))
	etcd := c.etcd(t)
	want := map[string]int64{}
	for i := range migrated {
		name := fmt.Sprintf("g-%02d", i)
		want[name] = int64(i)
		d.create(t, "v1", name, int64(i))
	}
	proxy := c.proxy(t)
	_, err := c.StartKCM(t.Context(), controlplane.KCMOptions{Arm: controlplane.ArmP, Server: proxy.URL()})
	require.NoError(t, err)
	resource := d.gvr("v2").GroupResource()
	last := d.create(t, "v1", "last", 0)
	want["last"] = 0
	within(t, 2*time.Minute, "the garbage collector to watch the resource", func() (bool, error) {
		return proxy.Progress(resource).Delivered.Reached(last.GetResourceVersion())
	})

	require.NoError(t, d.set(t, false, versionOf("v1", true, false, 1000), versionOf("v2", true, true, 1000)))
	eventually(t, "the storage version to be switched", func() (bool, error) {
		return slices.Equal(d.storedVersions(t), []string{"v1", "v2"}), nil
	})
	n := 0
	eventually(t, "objects to be stored in the new version", func() (bool, error) {
		n++
		d.resize(t, "v1", "last", int64(n))
		want["last"] = int64(n)
		return d.storedAs(t, etcd)["last"] == "v2", nil
	})
	onlyNew := versionOf("v2", true, true, 1000)
	require.True(t, apierrors.IsInvalid(d.set(t, true, onlyNew)), "the old version is still stored")

	hold, err := proxy.Inject(faultproxy.Target{Resource: resource}, faultproxy.Hold{})
	require.NoError(t, err)
	d.resize(t, "v1", "g-00", 500)
	d.resize(t, "v2", "g-01", 501)
	want["g-00"], want["g-01"] = 500, 501
	for _, name := range []string{"g-02", "g-03"} {
		require.NoError(t, c.patient.Resource(d.gvr("v1")).Delete(t.Context(), name, metav1.DeleteOptions{}))
		delete(want, name)
	}
	d.create(t, "v1", "g-03", 503) // another object of that name
	d.create(t, "v2", "new", 600)
	want["g-03"], want["new"] = 503, 600

	svms := c.kube.StoragemigrationV1().StorageVersionMigrations()
	_, err = svms.Create(t.Context(), &storagemigrationv1.StorageVersionMigration{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets"},
		Spec:       storagemigrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: resource.Group, Resource: resource.Resource}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var svm *storagemigrationv1.StorageVersionMigration
	read := func() {
		svm, err = svms.Get(t.Context(), "gadgets", metav1.GetOptions{})
		require.NoError(t, err)
		failed := meta.FindStatusCondition(svm.Status.Conditions, string(storagemigrationv1.MigrationFailed))
		require.False(t, failed != nil && failed.Status == metav1.ConditionTrue, "%v", failed)
	}
	is := func(condition storagemigrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(svm.Status.Conditions, string(condition))
	}
	within(t, time.Minute, "the migration to run", func() (bool, error) {
		read()
		return svm.Status.ResourceVersion != "" && is(storagemigrationv1.MigrationRunning), nil
	})
	require.NotEmpty(t, hold.Stats().Held.Events, "nothing was held back")
	d.resize(t, "v2", "g-05", 505) // an event at which the collector's cache is past the migration's beginning
	want["g-05"] = 505
	require.NoError(t, before(hold.Stats().FirstHeldRV, svm.Status.ResourceVersion), "the migration is to cover what was held back")
	for begin := time.Now(); time.Since(begin) < heldFor; <-time.After(tick) {
		read()
		require.False(t, is(storagemigrationv1.MigrationSucceeded), "it succeeded on a cache that lacks %s", svm.Status.ResourceVersion)
		require.Contains(t, d.storedVersions(t), "v1")
	}

	hold.Clear()
	within(t, 2*time.Minute, "the migration to succeed", func() (bool, error) {
		read()
		return is(storagemigrationv1.MigrationSucceeded), nil
	})
	within(t, time.Minute, "the old version to be taken out of storedVersions", func() (bool, error) {
		return slices.Equal(d.storedVersions(t), []string{"v2"}), nil
	})
	for name, version := range d.storedAs(t, etcd) {
		require.Equal(t, "v2", version, name)
	}
	require.Equal(t, want, d.sizes(t, "v1"))
	require.NoError(t, d.set(t, false, onlyNew), "the old version can be removed")
	require.Equal(t, want, d.sizes(t, "v2"), "nothing is lost")
}

// proxy starts a fault proxy in front of the apiserver.
func (c *cluster) proxy(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	certPEM, keyPEM, err := c.ServingCert("fault-proxy")
	require.NoError(t, err)
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(c.CAData()))
	server := c.APIServers()[0]
	proxy, err := faultproxy.Start(t.Context(), faultproxy.Options{
		ServingCert: cert, Backends: []faultproxy.Backend{{Name: server.Name(), URL: server.URL(), CAs: roots}},
	})
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	return proxy
}
