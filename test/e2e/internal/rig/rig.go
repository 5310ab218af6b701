// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/truth"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

// poll is how often a condition of the rig itself is looked at.
const poll = 20 * time.Millisecond

// Options describe a rig.
type Options struct {
	Arm Arm
	// Cluster is the control plane without its KCM.
	Cluster controlplane.Options
	// KCMArgs are added to the kube-controller-manager's command line.
	KCMArgs []string
	// Record is what the truth recorder records; empty means pods, nodes, daemonsets and controllerrevisions,
	// which the oracles need.
	Record []schema.GroupResource
}

// Rig is one running rig.
type Rig struct {
	Arm     Arm
	Cluster *controlplane.Cluster
	KCM     *controlplane.KCM
	// Proxy has a backend for each apiserver, by the apiserver's name.
	Proxy *faultproxy.Proxy
	// Client is an admin's, without faults and without rate limit.
	Client kubernetes.Interface
	Truth  *truth.Recorder

	options Options
	pid     int
	audit   oracle.Log
}

// Start starts a rig and returns when its KCM leads and its nodes are Ready. The rig lives until Stop.
func Start(ctx context.Context, options Options) (_ *Rig, err error) {
	r := &Rig{Arm: options.Arm, options: options}
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
	if r.KCM, err = r.StartKCM(ctx, "kube-controller-manager", r.Proxy); err != nil {
		return r, err
	}
	r.pid = r.KCM.PID()
	// Without it no pod can be created.
	err = Wait(ctx, time.Minute, "service account default/default", func() (bool, error) {
		_, err := r.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return r, err
	}
	record := options.Record
	if len(record) == 0 {
		record = []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions}
	}
	r.Truth, err = truth.Record(ctx, r.Cluster.AdminConfig(), record...)
	return r, err
}

// StartKCM starts one more kube-controller-manager of the rig's arm behind a proxy.
func (r *Rig) StartKCM(ctx context.Context, name string, proxy *faultproxy.Proxy, change ...func(*controlplane.KCMOptions)) (*controlplane.KCM, error) {
	options := r.Arm.KCM()
	options.Name, options.Server = name, proxy.URL()
	options.Args = append(options.Args, r.options.KCMArgs...)
	for _, c := range change {
		c(&options)
	}
	return r.Cluster.StartKCM(ctx, options)
}

// StartProxy starts one more fault proxy in front of the apiservers, for one more client. It lives until the
// caller closes it.
func (r *Rig) StartProxy(ctx context.Context) (*faultproxy.Proxy, error) {
	certPEM, keyPEM, err := r.Cluster.ServingCert("fault-proxy")
	if err != nil {
		return nil, fmt.Errorf("certificate for the fault proxy: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate for the fault proxy: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.Cluster.CAData())
	var backends []faultproxy.Backend
	for _, server := range r.Cluster.APIServers() {
		backends = append(backends, faultproxy.Backend{Name: server.Name(), URL: server.URL(), CAs: roots})
	}
	return faultproxy.Start(context.WithoutCancel(ctx), faultproxy.Options{ServingCert: cert, Backends: backends, JournalSize: 1 << 16})
}

// SameKCM returns an error unless the first kube-controller-manager is still the process that was started,
// and leads: figures of one that restarted mean something else.
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

// Audit returns what the apiservers have been asked so far, but by kwok and themselves.
func (r *Rig) Audit() ([]controlplane.AuditEvent, error) {
	return r.audit.Read(r.Cluster.APIServers()...)
}

// Writes returns the writes so far.
func (r *Rig) Writes() ([]controlplane.AuditEvent, error) {
	events, err := r.Audit()
	return oracle.Writes(events), err
}

// Told reports whether the KCM's watches of a resource were handed this resource version or a newer one.
func (r *Rig) Told(resource schema.GroupResource, rv string) (bool, error) {
	return r.Proxy.Progress(resource).Delivered.Reached(rv)
}

// Sent reports whether the apiserver has sent it to the proxy.
func (r *Rig) Sent(resource schema.GroupResource, rv string) (bool, error) {
	return r.Proxy.Progress(resource).Sent.Reached(rv)
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

// Keep writes what is needed to judge the run later and keeps the cluster's directory, which it returns.
func (r *Rig) Keep() (string, error) {
	r.Cluster.Keep()
	dir := filepath.Join(r.Cluster.Dir(), "evidence")
	var errs []error
	if r.Truth != nil {
		errs = append(errs, r.Truth.Dump(filepath.Join(dir, "truth")))
	}
	if r.Proxy != nil {
		errs = append(errs, writeJournal(filepath.Join(dir, "proxy.jsonl"), r.Proxy.Journal()))
	}
	return r.Cluster.Dir(), errors.Join(errs...)
}

func writeJournal(path string, entries []faultproxy.Entry) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the proxy's journal: %w", err)
	}
	defer f.Close()
	lines := json.NewEncoder(f)
	for _, e := range entries {
		if err := lines.Encode(e); err != nil {
			return fmt.Errorf("writing the proxy's journal: %w", err)
		}
	}
	return f.Close()
}

// Stop ends every process.
func (r *Rig) Stop(ctx context.Context) error {
	if r.Truth != nil {
		r.Truth.Stop()
	}
	var err error
	if r.Cluster != nil {
		err = r.Cluster.Stop(context.WithoutCancel(ctx))
	}
	if r.Proxy != nil {
		r.Proxy.Close()
	}
	return err
}
