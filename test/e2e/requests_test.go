// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	oldRequests, remadeRequests = 60, 30
	// deniedFor is longer than a request that was denied is kept.
	deniedFor = 2 * time.Hour
	// ruleRequest is broken by the deletion of a request that nobody has decided on.
	ruleRequest = "new certificate signing request deleted"
)

// The cleaner looks at all certificate signing requests when it begins to run, and then once an hour. Its first pass takes 20 s, because of the client's
// rate limit, and requests that it is about to delete are made again under their names meanwhile. Every stock arm deletes the new ones. Its controllers
// begin some seconds after it leads, as the cleaner does not wait for its cache.
var _ = describe(scenario{
	number: 53, title: "certificate signing requests made again under their names while a pass over old ones goes on", label: ordinary,
	hurts: rig.U1, rules: []string{ruleRequest}, mutants: []without{{"version-csrcleaner", ruleRequest}}, gaps: []int{20}, idle: true,
	options: rig.Options{KCMArgs: quickElection},
	timeout: 4 * time.Minute,
	run: func(ctx context.Context, r *run) {
		request := pemRequest()
		for i := range oldRequests {
			r.request(ctx, nameOf("request", i), request)
			r.deny(ctx, nameOf("request", i))
		}
		gomega.Expect(r.KCM.Kill()).To(gomega.Succeed())
		successor, err := r.StartKCM(ctx, "kube-controller-manager-restarted", r.Proxy, func(o *controlplane.KCMOptions) {
			o.Args = append(o.Args, "--controller-start-interval=15s", "--kube-api-qps=3", "--kube-api-burst=3")
		})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.Adopt(successor)

		r.eventually(ctx, "the pass to begin", func() (bool, error) {
			tried, err := r.cleaned()
			return tried.Len() > 0, err
		})
		began := time.Now()
		made := map[string]types.UID{}
		for i := oldRequests - remadeRequests; i < oldRequests; i++ {
			name := nameOf("request", i)
			gomega.Expect(r.Client.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, metav1.DeleteOptions{})).
				To(gomega.Or(gomega.Succeed(), gomega.MatchError(apierrors.IsNotFound, "not found")))
			made[name] = r.request(ctx, name, request)
		}
		tried, err := r.cleaned()
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.figure("V made again within, deletions by then", "%v, %d of %d", rounded(time.Since(began)), tried.Len(), oldRequests)
		if tried.Len() == oldRequests {
			r.unproven = append(r.unproven, "the pass was over before the requests were made again")
		}
		r.eventually(ctx, "the pass to end", func() (bool, error) {
			tried, err := r.cleaned()
			return tried.Len() == oldRequests, err
		})
		kept := 0
		for name, uid := range made {
			is, err := r.Client.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
			gomega.Expect(err).To(gomega.Or(gomega.BeNil(), gomega.MatchError(apierrors.IsNotFound, "not found")))
			if err == nil && is.UID == uid {
				kept++
				continue
			}
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleRequest, Object: name, Time: time.Now(), Detail: "it was made during the pass"})
		}
		r.figure("new requests left", "%d of %d", kept, remadeRequests)
		r.converges(ctx, "the old requests are gone", stepLimit, func() error {
			all, err := r.Client.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range all.Items {
				if len(all.Items[i].Status.Conditions) > 0 {
					return fmt.Errorf("%s is there", all.Items[i].Name)
				}
			}
			return nil
		})
	},
})

// pemRequest is a request for a certificate.
func pemRequest() []byte {
	ginkgo.GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "somebody"}}, key)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// request makes a certificate signing request that no controller decides on.
func (r *run) request(ctx context.Context, name string, request []byte) types.UID {
	ginkgo.GinkgoHelper()
	made, err := r.Client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, SignerName: "example.com/nobody", Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}},
	}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return made.UID
}

// deny denies a request long ago.
func (r *run) deny(ctx context.Context, name string) {
	ginkgo.GinkgoHelper()
	requests := r.Client.CertificatesV1().CertificateSigningRequests()
	request, err := requests.Get(ctx, name, metav1.GetOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue,
		Reason: "Test", LastUpdateTime: metav1.NewTime(time.Now().Add(-deniedFor))}}
	_, err = requests.UpdateApproval(ctx, name, request, metav1.UpdateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
}

// cleaned are the requests that the cleaner has tried to delete.
func (r *run) cleaned() (sets.Set[string], error) {
	events, err := r.Audit()
	tried := sets.New[string]()
	for i := range events {
		if e := &events[i]; e.Verb == "delete" && e.ObjectRef.Resource == "certificatesigningrequests" && e.ServiceAccount() == "certificate-controller" {
			tried.Insert(e.ObjectRef.Name)
		}
	}
	return tried, err
}
