// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clienttesting "k8s.io/client-go/testing"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	kubefeatures "k8s.io/kubernetes/pkg/features"
	taintutils "k8s.io/kubernetes/pkg/util/taints"
)

// post is what a kubelet posts of its node.
func (c *cluster) post(i int, status corev1.ConditionStatus) {
	node := c.node(i)
	ready := &node.Status.Conditions[0]
	if ready.Status != status {
		ready.LastTransitionTime = metav1.Now()
	}
	ready.Status, ready.LastHeartbeatTime = status, metav1.Now()
	_, err := c.server.CoreV1().Nodes().UpdateStatus(c.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

// repair is what became of nodes that posted their status while the leases could neither be seen nor listed.
type repair struct {
	// untainted is how long a node that had been dead kept its taint after it posted Ready; negative if it was not
	// taken off in ten minutes.
	untainted time.Duration
	// notReady is how long after a node posted NotReady it was tainted for that.
	notReady time.Duration
	// refused is how often a list of leases was refused meanwhile.
	refused int
	wrong   int // living nodes that were marked Unknown
}

func repairRun(t *testing.T, arm string, how error) (out repair) {
	t.Run(arm, func(t *testing.T) { out = repairArm(t, arm, how) })
	return out
}

func repairArm(t *testing.T, arm string, how error) (out repair) {
	if arm == "U0" {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, kubefeatures.NodeControllerLeaseCircuitBreaker, false)
	}
	synctest.Test(t, func(t *testing.T) {
		const n, dead, failing = 10, 0, 1
		const freezes, refuses, posts, length = 100, 140, 170, 770
		out = repair{untainted: -1, notReady: -1}
		var refused int
		refusing := false
		c := startCluster(t, n, arm == "P", func(c *cluster) {
			c.server.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if refusing {
					refused++
				}
				return refusing, nil, how
			})
		})
		for second := range length {
			for i := range n {
				if second%10 == i && (i != dead || second < 20 || second >= posts) {
					c.renew(i)
				}
			}
			switch second {
			case freezes:
				require.True(t, c.tainted(dead), "the fault comes after the death")
				c.freeze(true)
			case refuses:
				c.mu.Lock()
				refusing = true
				c.mu.Unlock()
			case posts:
				c.post(dead, corev1.ConditionTrue)
				c.post(failing, corev1.ConditionFalse)
			}
			time.Sleep(time.Second)
			since := time.Duration(second-posts+1) * time.Second
			if second >= posts && out.untainted < 0 && !c.tainted(dead) {
				out.untainted = since
			}
			if second >= posts && out.notReady < 0 && taintutils.TaintExists(c.node(failing).Spec.Taints, nodelifecycle.NotReadyTaintTemplate) {
				out.notReady = since
			}
		}
		for i := 2; i < n; i++ {
			if c.marked(i) {
				out.wrong++
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		out.refused = refused
	})
	return out
}

// While the breaker is open and lists of leases are refused, no silent node is marked. A node that posts Ready loses its
// taint no later than on stock upstream, and one that posts NotReady is tainted no later.
func TestNodesThatPostAreNotHeld(t *testing.T) {
	for title, how := range map[string]error{
		"busy":      apierrors.NewTooManyRequests("busy", 30),
		"forbidden": apierrors.NewForbidden(leaseResource, "", nil),
		"broken":    apierrors.NewInternalError(errors.New("broken")),
	} {
		t.Run(title, func(t *testing.T) {
			stock, gated, ours := repairRun(t, "U0", how), repairRun(t, "U1", how), repairRun(t, "P", how)
			t.Logf("U0 %+v, U1 %+v, P %+v", stock, gated, ours)
			require.Positive(t, stock.wrong, "the fault must hurt upstream")
			require.Zero(t, ours.wrong)
			require.Positive(t, ours.refused)
			require.NotEqual(t, time.Duration(-1), ours.untainted)
			require.LessOrEqual(t, ours.untainted, stock.untainted+nodePass)
			require.NotEqual(t, time.Duration(-1), ours.notReady)
			if stock.notReady > 0 {
				require.LessOrEqual(t, ours.notReady, stock.notReady+2*nodePass)
			}
		})
	}
}
