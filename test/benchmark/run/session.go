// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/measure"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/lag"
)

const (
	// stepLimit bounds a step, long enough for a thousand nodes on two cores at 20 requests a second.
	stepLimit = 10 * time.Minute
	// quiet is how long kube-controller-manager writes nothing when it has nothing left to do.
	quiet = 2 * time.Second
)

// session is a cluster on which arms take turns.
type session struct {
	cluster *controlplane.Cluster
	client  kubernetes.Interface
	audit   oracle.Log
	// binary is P's, empty for the one that was built.
	binary string
	// lagging stands between etcd and behind, an apiserver whose watch cache of pods it can have stand still. Nil without
	// a handover.
	lagging *lag.Proxy
	behind  *controlplane.APIServer
}

func startSession(ctx context.Context, b spec.Benchmark, binary string) (*session, error) {
	// A log that is rotated could not be read to its end.
	server := controlplane.ProcessOptions{Args: []string{"--audit-log-maxsize=1000000"}}
	cluster, err := controlplane.Start(ctx, controlplane.Options{
		Nodes:             controlplane.NodeOptions{Count: b.Nodes},
		NodeLeaseDuration: b.Lease.Duration,
		LeaseGenerator:    b.LeaseGenerator,
		APIServer:         server,
	})
	if err != nil {
		return nil, err
	}
	s := &session{cluster: cluster, binary: binary}
	if s.client, err = kubernetes.NewForConfig(cluster.AdminConfig()); err == nil && handsOver(b) {
		err = s.startBehind(ctx, server)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// startBehind starts the apiserver that can lag.
func (s *session) startBehind(ctx context.Context, options controlplane.ProcessOptions) (err error) {
	if s.lagging, err = lag.Start(s.cluster.EtcdURL(), filepath.Join(s.cluster.Dir(), "pki")); err != nil {
		return err
	}
	options.Args = append(options.Args, "--etcd-servers-overrides=/pods#"+s.lagging.URL())
	s.behind, err = s.cluster.StartAPIServer(ctx, options)
	return err
}

// stop ends all processes.
func (s *session) stop(ctx context.Context) error {
	if s.lagging != nil {
		s.lagging.Release()
		defer s.lagging.Close()
	}
	return s.cluster.Stop(ctx)
}

// own is the binary of an arm that has another than the one that was built; empty otherwise.
func (s *session) own(arm controlplane.Arm) string {
	if arm == controlplane.ArmP {
		return s.binary
	}
	return ""
}

// version asks an arm's binary.
func (s *session) version(ctx context.Context, arm controlplane.Arm) string {
	out, err := exec.CommandContext(ctx, cmp.Or(s.own(arm), arm.Binary(s.cluster.BinPath(""))), "--version").Output()
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
}

// namespace makes a namespace in which pods can be created.
func (s *session) namespace(ctx context.Context, name string) error {
	_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return faultrig.Wait(ctx, stepLimit, "the service account of "+name, func() (bool, error) {
		_, err := s.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, ignoreNotFound(err)
	})
}

// removeNamespace deletes it and waits until it is gone.
func (s *session) removeNamespace(ctx context.Context, name string) error {
	if err := s.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return ignoreNotFound(err)
	}
	return s.eventually(ctx, "the namespace "+name+" to be gone", func() (bool, error) {
		_, err := s.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
}

// healthy waits until all nodes are Ready and not tainted for having been otherwise.
func (s *session) healthy(ctx context.Context) error {
	return s.eventually(ctx, "all nodes to be Ready", func() (bool, error) {
		nodes, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err
		}
		for i := range nodes.Items {
			if !healthy(&nodes.Items[i]) {
				return false, nil
			}
		}
		return len(nodes.Items) == len(s.cluster.Nodes().Names()), nil
	})
}

func healthy(node *corev1.Node) bool {
	ready := false
	for _, c := range node.Status.Conditions {
		ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	for _, taint := range node.Spec.Taints {
		ready = ready && taint.Key != corev1.TaintNodeUnreachable && taint.Key != corev1.TaintNodeNotReady
	}
	return ready
}

// resign ends a kube-controller-manager and its leadership, so that the next one need not wait for that to run out.
func (s *session) resign(ctx context.Context, kcm *controlplane.KCM) error {
	err := kcm.Stop()
	return errors.Join(err, ignoreNotFound(s.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, "kube-controller-manager", metav1.DeleteOptions{})))
}

// settled waits until the kube-controller-manager has written nothing in a namespace for a while, and returns when its last
// write was answered, since if there was none.
func (s *session) settled(ctx context.Context, namespace string, since time.Time) (last time.Time, err error) {
	err = s.eventually(ctx, "kube-controller-manager to have nothing left to do", func() (bool, error) {
		events, err := s.audit.Read(s.cluster.APIServers()...)
		if last = oracle.LastWrite(events, namespace); last.Before(since) {
			last = since
		}
		return time.Since(last) > quiet, err
	})
	return last, err
}

// eventually waits for a condition that is looked at seldom, since looking costs the apiserver what is measured.
func (s *session) eventually(ctx context.Context, what string, done func() (bool, error)) error {
	const every = 250 * time.Millisecond
	var next time.Time
	return faultrig.Wait(ctx, stepLimit, what, func() (bool, error) {
		if time.Now().Before(next) {
			return false, nil
		}
		next = time.Now().Add(every)
		return done()
	})
}

// atOnce waits for a condition that is cheap to look at.
func (s *session) atOnce(ctx context.Context, what string, done func() (bool, error)) error {
	return faultrig.Wait(ctx, stepLimit, what, done)
}

// apiserver scrapes the apiserver.
func (s *session) apiserver(ctx context.Context) (measure.Metrics, error) {
	page, err := s.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("metrics of the apiserver: %w", err)
	}
	return measure.Parse(page)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
