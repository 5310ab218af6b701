// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	kwokNodes = 10
	allNodes  = kwokNodes + 1
	// pace is the time between two changes of the workload.
	pace = time.Second
)

// world is the cluster that the node belongs to.
type world struct {
	*node
	life    *testing.T // of the whole cluster, not of a part
	cluster *controlplane.Cluster
	client  kubernetes.Interface
	http    *http.Client // the admin's, for pages of servers that sign their own certificates
	truth   *truth.Recorder
	set     *appsv1.DaemonSet
}

func startWorld(t *testing.T, n *node) *world {
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{
		Dir: filepath.Join(n.dir, "log", "cluster"), BinDir: n.bin, Nodes: controlplane.NodeOptions{Count: kwokNodes},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.Background())) })
	w := &world{node: n, life: t, cluster: cluster, client: kubernetes.NewForConfigOrDie(cluster.AdminConfig())}
	require.NoError(t, cluster.WriteKubernetesDir(kubernetesDir, nodeName))

	admin := cluster.AdminConfig()
	certificate, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	require.NoError(t, err)
	w.http = &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // the next one on the port may be another process
		TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{certificate}, InsecureSkipVerify: true},
	}}
	return w
}

// record begins the recording of the truth, once all nodes are Ready.
func (w *world) record(t *testing.T) {
	names := append(w.cluster.Nodes().Names(), nodeName)
	var err error
	w.truth, err = truth.Record(t.Context(), w.cluster.AdminConfig(),
		truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions, truth.ReplicaSets)
	require.NoError(t, err)
	w.life.Cleanup(w.truth.Stop)
	w.eventually(t, "all nodes are Ready", func(context.Context) error { return oracle.NodesReady(w.truth, names...) })
}

// deploy creates a DaemonSet, whose pod on the real node is a real one, and a Deployment on kwok's nodes.
func (w *world) deploy(t *testing.T) {
	set := workload.DaemonSet("agent", workload.MaxUnavailable(3))
	set.Spec.Template.Spec.HostNetwork = true // no network plugin is on the node
	set.Spec.Template.Spec.Containers[0].Image = pauseImage
	var err error
	w.set, err = w.client.AppsV1().DaemonSets(set.Namespace).Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
	web := workload.Deployment("web", 5)
	web.Spec.Template.Spec.NodeSelector = map[string]string{controlplane.AliveLabel: "true"}
	_, err = w.client.AppsV1().Deployments(web.Namespace).Create(t.Context(), web, metav1.CreateOptions{})
	require.NoError(t, err)
	w.settled(t)
}

// rollout changes the DaemonSet's template.
func (w *world) rollout(ctx context.Context, round int) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"round":"%d"}}}}}`, round)
	_, err := w.client.AppsV1().DaemonSets(w.set.Namespace).Patch(ctx, w.set.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

// settled waits until everything is as asked. The record has the request by then: without it an earlier state would pass for the end.
func (w *world) settled(t *testing.T) {
	t.Helper()
	w.eventually(t, "the record is complete", w.truth.Sync)
	w.eventually(t, "the workload is as asked for", func(ctx context.Context) error {
		if err := oracle.DaemonSetDone(w.truth, w.set.UID, allNodes); err != nil {
			return err
		}
		web, err := w.client.AppsV1().Deployments(metav1.NamespaceDefault).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := web.Status; s.ObservedGeneration != web.Generation || s.AvailableReplicas != *web.Spec.Replicas || s.Replicas != *web.Spec.Replicas {
			return fmt.Errorf("the Deployment asks for %d and has %+v", *web.Spec.Replicas, s)
		}
		return nil
	})
}

// reconciles shows that the present leader does: the DaemonSet is changed and ends as asked.
func (w *world) reconciles(t *testing.T, round int) {
	t.Helper()
	require.NoError(t, w.rollout(t.Context(), round))
	w.settled(t)
}

// churn changes the workload all the time until the returned function is called, which fails the test if a change
// was refused.
func (w *world) churn(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	var failed error
	rounds := 0
	done.Go(func() {
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			rounds++
			err := w.rollout(ctx, rounds)
			if err == nil {
				scale := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, 3+rounds*5%11)
				_, err = w.client.AppsV1().Deployments(metav1.NamespaceDefault).Patch(ctx, "web", types.MergePatchType, scale, metav1.PatchOptions{}, "scale")
			}
			if err != nil && ctx.Err() == nil {
				failed = errors.Join(failed, err)
			}
		}
	})
	return func() {
		t.Helper()
		cancel()
		done.Wait()
		require.NoError(t, failed)
		t.Logf("the workload was changed %d times", rounds)
	}
}

// keepsUp shows that the present leader reconciles while the workload changes: it reports on three further changes.
func (w *world) keepsUp(t *testing.T) {
	t.Helper()
	get := func(ctx context.Context) (*appsv1.DaemonSet, error) {
		return w.client.AppsV1().DaemonSets(w.set.Namespace).Get(ctx, w.set.Name, metav1.GetOptions{})
	}
	from, err := get(t.Context())
	require.NoError(t, err)
	w.eventually(t, "the DaemonSet's status follows its changes", func(ctx context.Context) error {
		now, err := get(ctx)
		if err == nil && now.Status.ObservedGeneration < from.Generation+3 {
			err = fmt.Errorf("generation %d, observed %d, from %d on", now.Generation, now.Status.ObservedGeneration, from.Generation)
		}
		return err
	})
}
