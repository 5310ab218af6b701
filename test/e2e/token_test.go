// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	extendedToken, expiringToken = "aaaaaa", "bbbbbb"
	// tokenLife is that of a token at first.
	tokenLife = 15 * time.Second
	// ruleToken is broken by the deletion of a token that has not expired.
	ruleToken = "token deleted that has not expired"
)

var secrets = schema.GroupResource{Resource: "secrets"}

// The life of a bootstrap token is extended while secrets are held. Every stock arm deletes it when its first life is over.
// A token that has expired must go.
var _ = describe(scenario{
	number: 39, title: "secrets held: the life of a bootstrap token extended", label: ordinary,
	hurts: rig.U1, rules: []string{ruleToken}, mutants: []without{{"version-tokencleaner", ruleToken}}, gaps: []int{20}, idle: true,
	options: rig.Options{KCMArgs: []string{"--controllers=*,token-cleaner-controller"}},
	timeout: 3 * time.Minute,
	run: func(ctx context.Context, r *run) {
		r.token(ctx, expiringToken, time.Second)
		r.converges(ctx, "the first token is deleted", patience, func() error { return r.tokenGone(ctx, expiringToken) })

		due := r.token(ctx, extendedToken, tokenLife)
		r.passes(ctx, "the controller to know the token", time.Now(), 2*time.Second)
		hold := r.inject(faultproxy.Target{Resource: secrets}, faultproxy.Hold{})
		_, err := r.Client.CoreV1().Secrets(metav1.NamespaceSystem).Patch(ctx, "bootstrap-token-"+extendedToken, types.MergePatchType,
			fmt.Appendf(nil, `{"stringData":{%q:%q}}`, "expiration", expiry(time.Now().Add(time.Hour))), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		late := time.Until(due)
		r.figure("V extended before due", "%v", rounded(late))
		if late <= 0 {
			r.unproven = append(r.unproven, "the token was extended too late")
		}
		r.passes(ctx, "the first life to be over", due, 3*time.Second)
		r.proves(hold, 1, late)
		gone := r.tokenGone(ctx, extendedToken) == nil
		r.figure("token", "%s", map[bool]string{true: "deleted", false: "kept"}[gone])
		if gone {
			r.violate(oracle.Violation{Oracle: "S2", Rule: ruleToken, Object: extendedToken, Time: time.Now(), Detail: "it lives for an hour"})
		}
		hold.Clear()

		r.token(ctx, expiringToken, time.Second)
		r.figure("expired one deleted after", "%v", rounded(r.converges(ctx, "a token that has expired is deleted", stepLimit, func() error {
			return r.tokenGone(ctx, expiringToken)
		})))
	},
})

func expiry(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// token makes a bootstrap token that lives for so long, and returns when it expires.
func (r *run) token(ctx context.Context, id string, lives time.Duration) time.Time {
	ginkgo.GinkgoHelper()
	expires := time.Now().Add(lives).Truncate(time.Second)
	_, err := r.Client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": "0123456789abcdef", "expiration": expiry(expires),
		},
	}, metav1.CreateOptions{})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return expires
}

// tokenGone returns nil if there is no such token.
func (r *run) tokenGone(ctx context.Context, id string) error {
	_, err := r.Client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, "bootstrap-token-"+id, metav1.GetOptions{})
	if err == nil {
		return fmt.Errorf("token %s is there", id)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
