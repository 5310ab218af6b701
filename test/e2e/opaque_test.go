// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

// What scenario 24 stands on: a client that knows opaque versions only can do everything with them.
var _ = ginkgo.Describe("Opaque resource versions on a real apiserver", ginkgo.Label("faultproxy", ordinary), func() {
	for name, contentType := range map[string]string{"JSON": runtime.ContentTypeJSON, "protobuf": runtime.ContentTypeProtobuf} {
		ginkgo.It("serve a client that speaks "+name, func(ctx context.Context) {
			client := opaqueClient(ctx, contentType)
			configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
			first, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "opaque"}}, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			gomega.Expect(first.ResourceVersion).To(gomega.HavePrefix("v-"))

			changed := first.DeepCopy()
			changed.Data = map[string]string{"a": "1"}
			second, err := configMaps.Update(ctx, changed, metav1.UpdateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			gomega.Expect(second.ResourceVersion).To(gomega.And(gomega.HavePrefix("v-"), gomega.Not(gomega.Equal(first.ResourceVersion))))
			_, err = configMaps.Update(ctx, changed, metav1.UpdateOptions{})
			gomega.Expect(apierrors.IsConflict(err)).To(gomega.BeTrue(), "an update of the first version: %v", err)

			list, err := configMaps.List(ctx, metav1.ListOptions{ResourceVersion: second.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			for _, item := range list.Items {
				gomega.Expect(item.ResourceVersion).To(gomega.HavePrefix("v-"))
			}
			gomega.Expect(list.ResourceVersion).To(gomega.HavePrefix("v-"))

			watch, err := configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion, FieldSelector: "metadata.name=opaque"})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
			defer watch.Stop()
			err = configMaps.Delete(ctx, "opaque", *metav1.NewRVDeletionPrecondition(first.ResourceVersion))
			gomega.Expect(apierrors.IsConflict(err)).To(gomega.BeTrue(), "a deletion of the first version: %v", err)
			gomega.Expect(configMaps.Delete(ctx, "opaque", *metav1.NewRVDeletionPrecondition(second.ResourceVersion))).To(gomega.Succeed())
			var told []string
			for len(told) < 2 {
				event := <-watch.ResultChan()
				told = append(told, string(event.Type)+" "+strings.TrimRight(event.Object.(*corev1.ConfigMap).ResourceVersion, "0123456789"))
			}
			gomega.Expect(told).To(gomega.Equal([]string{"MODIFIED v-", "DELETED v-"}))
		}, ginkgo.SpecTimeout(slowMachine*time.Minute))
	}
})

// opaqueClient returns a client of a cluster without controllers to which versions of config maps are opaque.
func opaqueClient(ctx context.Context, contentType string) kubernetes.Interface {
	ginkgo.GinkgoHelper()
	cluster, err := controlplane.Start(ctx, controlplane.Options{NoAudit: true})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(cluster.Stop)
	config := rest.CopyConfig(cluster.AdminConfig())
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.CAData())
	admin, err := tls.X509KeyPair(config.CertData, config.KeyData)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	certPEM, keyPEM, err := cluster.ServingCert("fault-proxy")
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	serving, err := tls.X509KeyPair(certPEM, keyPEM)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	server := cluster.APIServers()[0]
	proxy, err := faultproxy.Start(context.WithoutCancel(ctx), faultproxy.Options{
		ServingCert: serving, ClientCAs: roots, ClientCert: &admin,
		Backends: []faultproxy.Backend{{Name: server.Name(), URL: server.URL(), CAs: roots}},
	})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(proxy.Close)
	_, err = proxy.Inject(faultproxy.Target{Resource: corev1.Resource("configmaps")}, faultproxy.OpaqueRVs{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	config.Host = proxy.URL()
	config.ContentType, config.AcceptContentTypes = contentType, contentType
	client, err := kubernetes.NewForConfig(config)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return client
}
