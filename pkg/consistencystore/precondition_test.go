// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller/bootstrap"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

// A deletion names what it rests on, and one that is refused for that is no error: it is tried again when the cache has changed,
// or in the next regular pass.
func TestDeletionsNameWhatTheyRestOn(t *testing.T) {
	old := metav1.NewTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)) // The clock of a bubble begins in 2000.
	read := metav1.ObjectMeta{Name: "a", UID: "uid", ResourceVersion: "7", CreationTimestamp: old}
	token := read
	token.Namespace = metav1.NamespaceSystem
	for name, test := range map[string]struct {
		object   runtime.Object
		resource string
		store    string
		run      func(ctx context.Context, t *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func()
	}{
		"certificate signing request": {
			object: &certificatesv1.CertificateSigningRequest{ObjectMeta: read}, resource: "certificatesigningrequests", store: "csrcleaner",
			run: func(ctx context.Context, _ *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
				c := cleaner.NewCSRCleanerController(client.CertificatesV1().CertificateSigningRequests(), factory.Certificates().V1().CertificateSigningRequests())
				return func() { c.Run(ctx, 1) }
			},
		},
		"bootstrap token": {
			object: &corev1.Secret{ObjectMeta: token, Type: corev1.SecretTypeBootstrapToken,
				Data: map[string][]byte{"expiration": []byte(old.Format(time.RFC3339))}},
			resource: "secrets", store: "tokencleaner",
			run: func(ctx context.Context, t *testing.T, client *fake.Clientset, factory informers.SharedInformerFactory) func() {
				c, err := bootstrap.NewTokenCleaner(client, factory.Core().V1().Secrets(), bootstrap.DefaultTokenCleanerOptions())
				require.NoError(t, err)
				return func() { c.Run(ctx) }
			},
		},
	} {
		for _, stock := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stock: %t", name, stock), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					provideFor(ctx, t, test.store, stock)
					client := fake.NewClientset(test.object)
					var asked []metav1.DeleteOptions
					client.PrependReactor("delete", test.resource, func(action k8stesting.Action) (bool, runtime.Object, error) {
						d := action.(k8stesting.DeleteActionImpl)
						asked = append(asked, d.DeleteOptions)
						return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: test.resource}, d.Name, fmt.Errorf("it has changed"))
					})
					factory := informers.NewSharedInformerFactory(client, 0)
					run := test.run(ctx, t, client, factory)
					factory.Start(ctx.Done())
					factory.WaitForCacheSync(ctx.Done())
					go run()
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					cancel()
					factory.Shutdown()
					require.Len(t, asked, 1, "no loop of errors")
					if stock {
						require.True(t, asked[0].Preconditions == nil || asked[0].Preconditions.ResourceVersion == nil)
						return
					}
					require.Equal(t, &metav1.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion}, asked[0].Preconditions)
				})
			})
		}
	}
}

// provideFor has the controller get a store that can tell what is fresh, or stock's.
func provideFor(ctx context.Context, t *testing.T, want string, stock bool) {
	consistency.SetProvider(func(controller string, caches map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		if stock {
			return consistency.NewNoopConsistencyStore()
		}
		require.Equal(t, want, controller)
		return passStore(ctx, &verdicts{}, caches)
	})
	t.Cleanup(func() { consistency.SetProvider(nil) })
}
