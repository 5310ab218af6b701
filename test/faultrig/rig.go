// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultrig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

const (
	// kcmName is the first kube-controller-manager's, so that its log has the same name in every run.
	kcmName = "kube-controller-manager"
	// poll is how often a condition is looked at.
	poll = 20 * time.Millisecond
	// startLimit bounds what follows the start of a kube-controller-manager, tellLimit what no fault delays. Neither judges anything.
	startLimit = 3 * time.Minute
	tellLimit  = 2 * time.Minute
	// journal is how many interventions the proxy keeps as evidence.
	journal = 1 << 16
)

// Options describe a rig.
type Options struct {
	// Cluster is the control plane without its kube-controller-manager.
	Cluster controlplane.Options
	// KCM is the kube-controller-manager. Name and Server are set here.
	KCM controlplane.KCMOptions
}

// Rig is one running rig.
type Rig struct {
	Cluster *controlplane.Cluster
	KCM     *controlplane.KCM
	// Proxy has a backend for each apiserver, by the apiserver's name.
	Proxy *faultproxy.Proxy
	// Client is an admin's, without faults and without rate limit.
	Client kubernetes.Interface

	options Options
	pid     int
}

// Start starts a rig and returns when its kube-controller-manager leads, its nodes are Ready, and pods can be
// created in the namespace default. The context bounds the start only; the rig lives until Stop.
func Start(ctx context.Context, options Options) (_ *Rig, err error) {
	r := &Rig{options: options}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Stop(ctx))
		}
	}()
	if r.Cluster, err = controlplane.Start(ctx, options.Cluster); err != nil {
		return r, err
	}
	if r.Client, err = kubernetes.NewForConfig(r.Cluster.AdminConfig()); err != nil {
		return r, fmt.Errorf("admin client: %w", err)
	}
	if r.Proxy, err = r.StartProxy(ctx); err != nil {
		return r, err
	}
	kcm, err := r.StartKCM(ctx, kcmName, r.Proxy)
	if err != nil {
		return r, err
	}
	r.Adopt(kcm)
	// Without it no pod can be created.
	return r, Wait(ctx, startLimit, "service account default/default", func() (bool, error) {
		_, err := r.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// StartKCM starts one more kube-controller-manager like the rig's behind a proxy.
func (r *Rig) StartKCM(ctx context.Context, name string, proxy *faultproxy.Proxy, change ...func(*controlplane.KCMOptions)) (*controlplane.KCM, error) {
	options := r.options.KCM
	options.Name, options.Server = name, proxy.URL()
	options.Args = slices.Clone(options.Args)
	for _, c := range change {
		c(&options)
	}
	return r.Cluster.StartKCM(ctx, options)
}

// Adopt makes another kube-controller-manager the one that must live and lead to the end, where a run ends or
// replaces the first.
func (r *Rig) Adopt(kcm *controlplane.KCM) {
	r.KCM, r.pid = kcm, kcm.PID()
}

// StartProxy starts one more fault proxy in front of the apiservers, for one more client. It lives until the
// caller closes it.
func (r *Rig) StartProxy(ctx context.Context) (*faultproxy.Proxy, error) {
	return StartProxy(ctx, r.Cluster)
}

// StartProxy starts a fault proxy in front of a cluster's apiservers. It lives until the caller closes it.
func StartProxy(ctx context.Context, cluster *controlplane.Cluster) (*faultproxy.Proxy, error) {
	certPEM, keyPEM, err := cluster.ServingCert("fault-proxy")
	if err != nil {
		return nil, fmt.Errorf("certificate for the fault proxy: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate for the fault proxy: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cluster.CAData())
	var backends []faultproxy.Backend
	for _, server := range cluster.APIServers() {
		backends = append(backends, faultproxy.Backend{Name: server.Name(), URL: server.URL(), CAs: roots})
	}
	return faultproxy.Start(context.WithoutCancel(ctx), faultproxy.Options{ServingCert: cert, Backends: backends, JournalSize: journal})
}

// SameKCM returns an error unless the kube-controller-manager is still the process that was started or
// adopted, and leads: figures of one that restarted mean something else.
func (r *Rig) SameKCM(ctx context.Context) error {
	if pid := r.KCM.PID(); pid != r.pid {
		return fmt.Errorf("%s died during the run (pid was %d, is %d); log: %s", r.KCM.Name(), r.pid, pid, r.KCM.LogPath())
	}
	leads, err := r.KCM.IsLeader(ctx)
	if err == nil && !leads {
		err = errors.New("it lost its leadership during the run")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.KCM.Name(), err)
	}
	return nil
}

// Told reports whether the kube-controller-manager's watches of a resource were handed this resource version
// or a newer one.
func (r *Rig) Told(resource schema.GroupResource, rv string) (bool, error) {
	return r.Proxy.Progress(resource).Delivered.Reached(rv)
}

// Sent reports whether the apiserver has sent it to the proxy.
func (r *Rig) Sent(resource schema.GroupResource, rv string) (bool, error) {
	return r.Proxy.Progress(resource).Sent.Reached(rv)
}

// WaitTold waits until Told.
func (r *Rig) WaitTold(ctx context.Context, resource schema.GroupResource, rv string) error {
	return Wait(ctx, tellLimit, fmt.Sprintf("the kube-controller-manager to be told of %s at %s", resource, rv), func() (bool, error) {
		return r.Told(resource, rv)
	})
}

// Wait waits for a condition; what says what for.
func Wait(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		ok, err := done()
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// Sleep lets time go by. It returns an error if the context ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
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
