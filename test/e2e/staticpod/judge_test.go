// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

// judge asks the oracles about everything since the recording began. What stock kube-controller-manager did wrong while it
// led is only told: it has gaps (docs/track-record.md), and on a busy machine it deletes a pod for the second time.
func (s *story) judge(t *testing.T) {
	t.Helper()
	violations, writes := s.violations(t)
	require.Empty(t, violations)
	digest := oracle.DigestOf(s.truth, s.set.UID)
	require.Positive(t, digest.PodsDeleted)
	t.Logf("judged %d writes; of the DaemonSet's pods %d were created, %d deleted", writes, digest.PodsCreated, digest.PodsDeleted)
}

// wrong shows that judge can find something: it deletes a pod in the DaemonSet controller's name, and asks for what that has no rule for.
func (s *story) wrong(t *testing.T) {
	const account = oracle.DaemonSetController
	token, err := s.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := rest.AnonymousClientConfig(s.cluster.AdminConfig())
	config.BearerToken = token.Status.Token
	pods, err := s.client.CoreV1().Pods(s.set.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + s.cluster.Nodes().Names()[0]})
	require.NoError(t, err)
	agent := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return metav1.IsControlledBy(&p, s.set) })
	require.NotEqual(t, -1, agent)
	name := pods.Items[agent].Name
	forger := kubernetes.NewForConfigOrDie(config).CoreV1()
	require.NoError(t, forger.Pods(s.set.Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	require.True(t, apierrors.IsForbidden(forger.Secrets(s.set.Namespace).Delete(t.Context(), "secret", metav1.DeleteOptions{})))
	s.settled(t)
	violations, _ := s.violations(t)
	require.Len(t, violations, 2)
	require.Equal(t, oracle.RuleUnjustified, violations[0].Rule)
	require.Contains(t, violations[0].Object, name)
	require.Equal(t, oracle.RuleUndeclared, violations[1].Rule)
	require.Contains(t, violations[1].Object, "secret")
}

// violations are what the oracles find, and in how many writes.
func (s *story) violations(t *testing.T) ([]oracle.Violation, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.truth.Sync(ctx))
	var log oracle.Log
	events, err := log.Read(s.cluster.APIServers()...)
	require.NoError(t, err)
	writes := oracle.Writes(events)
	none := oracle.Deaths{Nodes: sets.New[string]()}
	violations := slices.Concat(oracle.Surplus(s.truth), oracle.BehindOwnWrites(s.truth, writes),
		oracle.Unjustified(s.truth, writes, none, oracle.DaemonSetDeletes, oracle.ReplicaSetDeletes), oracle.Undeclared(writes))
	violations = slices.DeleteFunc(violations, func(v oracle.Violation) bool {
		if writer(writes, v.Time) != s.base {
			return false
		}
		t.Logf("stock: %v", v)
		return true
	})
	return violations, len(writes)
}

// writer is the version of the kube-controller-manager whose controllers wrote last before a time. Between the writes of
// two versions there are seconds in which neither leads.
func writer(writes []controlplane.AuditEvent, at time.Time) string {
	version := ""
	for _, e := range writes {
		if e.StageTimestamp.After(at) {
			break
		}
		if agent, found := strings.CutPrefix(e.UserAgent, container+"/"); found && e.ServiceAccount() != "" {
			version, _, _ = strings.Cut(agent, " ")
		}
	}
	return version
}
