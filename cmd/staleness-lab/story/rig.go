// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

const pollInterval = 50 * time.Millisecond

// RigOptions describe a rig.
type RigOptions struct {
	Arm controlplane.Arm
	// Dir is for the cluster's files; empty means a temporary directory.
	Dir string
	// Nodes are Ready when the rig is.
	Nodes int
	// KCMArgs are added to the kube-controller-manager's command line.
	KCMArgs []string
}

// Rig is a control plane with one kube-controller-manager that reaches the apiserver through a fault proxy.
// Everybody else goes to the apiserver directly.
type Rig struct {
	Cluster *controlplane.Cluster
	KCM     *controlplane.KCM
	Proxy   *faultproxy.Proxy
	// Client is an admin's, without faults and without rate limit.
	Client kubernetes.Interface

	pid int
}

// StartRig starts a rig. The context bounds the proxy's life too.
func StartRig(ctx context.Context, options RigOptions) (_ *Rig, err error) {
	r := &Rig{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Stop(ctx))
		}
	}()
	r.Cluster, err = controlplane.Start(ctx, controlplane.Options{
		Dir:   options.Dir,
		Nodes: controlplane.NodeOptions{Count: options.Nodes},
	})
	if err != nil {
		return r, err
	}
	if r.Client, err = kubernetes.NewForConfig(r.Cluster.AdminConfig()); err != nil {
		return r, fmt.Errorf("admin client: %w", err)
	}
	if r.Proxy, err = startProxy(ctx, r.Cluster); err != nil {
		return r, err
	}
	r.KCM, err = r.Cluster.StartKCM(ctx, controlplane.KCMOptions{
		Arm:            options.Arm,
		Name:           "kube-controller-manager",
		Server:         r.Proxy.URL(),
		ProcessOptions: controlplane.ProcessOptions{Args: options.KCMArgs},
	})
	if err != nil {
		return r, err
	}
	r.pid = r.KCM.PID()
	return r, until(ctx, time.Minute, "service account default/default", func() (bool, error) {
		_, err := r.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

func startProxy(ctx context.Context, c *controlplane.Cluster) (*faultproxy.Proxy, error) {
	certPEM, keyPEM, err := c.ServingCert("fault-proxy")
	if err != nil {
		return nil, fmt.Errorf("certificate for the fault proxy: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate for the fault proxy: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.CAData())
	server := c.APIServers()[0]
	return faultproxy.Start(ctx, faultproxy.Options{
		ServingCert: cert,
		Backends:    []faultproxy.Backend{{Name: server.Name(), URL: server.URL(), CAs: roots}},
	})
}

// Stop ends every process.
func (r *Rig) Stop(ctx context.Context) error {
	var err error
	if r.Cluster != nil {
		err = r.Cluster.Stop(context.WithoutCancel(ctx))
	}
	if r.Proxy != nil {
		r.Proxy.Close()
	}
	return err
}

// AuditLog returns the apiserver's audit log.
func (r *Rig) AuditLog() string { return r.Cluster.APIServers()[0].AuditLogPath() }

// SameKCM returns an error unless the kube-controller-manager is still the process that was started, and
// leads: figures of one that restarted mean something else.
func (r *Rig) SameKCM(ctx context.Context) error {
	if pid := r.KCM.PID(); pid != r.pid {
		return fmt.Errorf("%s died during the story (pid was %d, is %d); log: %s", r.KCM.Name(), r.pid, pid, r.KCM.LogPath())
	}
	leads, err := r.KCM.IsLeader(ctx)
	if err == nil && !leads {
		err = errors.New("it lost its leadership during the story")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.KCM.Name(), err)
	}
	return nil
}

// Told reports whether the kube-controller-manager's watches of a resource were handed this resource
// version or a newer one.
func (r *Rig) Told(resource schema.GroupResource, rv string) (bool, error) {
	return r.Proxy.Progress(resource).Delivered.Reached(rv)
}

// Sent reports whether the apiserver has sent it to the proxy.
func (r *Rig) Sent(resource schema.GroupResource, rv string) (bool, error) {
	return r.Proxy.Progress(resource).Sent.Reached(rv)
}

// WaitTold waits until Told.
func (r *Rig) WaitTold(ctx context.Context, resource schema.GroupResource, rv string) error {
	return until(ctx, time.Minute, fmt.Sprintf("the kube-controller-manager to be told of %s at %s", resource, rv), func() (bool, error) {
		return r.Told(resource, rv)
	})
}

// until waits for a condition.
func until(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ok, err := done()
		if ok {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}
