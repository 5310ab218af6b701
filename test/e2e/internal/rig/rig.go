// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/test/clock"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// Options describe a rig.
type Options struct {
	Arm Arm
	// Binary replaces the arm's, unless it is empty.
	Binary string
	// Cluster is the control plane without its KCM.
	Cluster controlplane.Options
	// KCMArgs are added to the kube-controller-manager's command line.
	KCMArgs []string
	// Record is what the truth recorder records; empty means pods, nodes, daemonsets and controllerrevisions,
	// which the oracles need.
	Record []schema.GroupResource
	// Forges says that the run writes in controllers' names what they never write.
	Forges bool
	// Rest has all else recorded, too, of most resources only metadata, so that the oracles judge deletions, finalizers and statuses of any.
	Rest bool
}

// Rig is one running rig.
type Rig struct {
	*faultrig.Rig
	Arm   Arm
	Truth *truth.Recorder

	audit  oracle.Log
	record []schema.GroupResource
	rest   bool
	binary string
	forges bool
	// undeclared are the writes without a rule, and proofs the proofs and probes, of the parts of the run before this one.
	undeclared []oracle.Violation
	proofs     oracle.ProofLoad
}

// mostProofs is how many requests of package freshness there may be a second, besides those that a start has caused and those that the monitor
// has saved.
const mostProofs = 3

// UserAgent is how the user agents of all requests of its kube-controller-manager begin.
func (r *Rig) UserAgent() string {
	if r.binary != "" {
		return filepath.Base(r.binary) + "/"
	}
	return "kube-controller-manager/"
}

// Start starts a rig and returns when its KCM leads, its nodes are Ready and the truth is being recorded. The
// rig lives until Stop.
func Start(ctx context.Context, options Options) (_ *Rig, err error) {
	kcm := options.Arm.KCM()
	kcm.Args = append(kcm.Args, options.KCMArgs...)
	kcm.Binary = options.Binary
	r := &Rig{Arm: options.Arm, binary: options.Binary, forges: options.Forges}
	if r.Rig, err = faultrig.Start(ctx, faultrig.Options{Cluster: options.Cluster, KCM: kcm}); err != nil {
		return nil, err
	}
	r.record = options.Record
	if len(r.record) == 0 {
		r.record = []schema.GroupResource{truth.Pods, truth.Nodes, truth.DaemonSets, truth.ControllerRevisions}
	}
	if r.rest = options.Rest; r.rest {
		r.record = append(slices.Clone(r.record), slices.DeleteFunc(slices.Clone(truth.InUse), func(resource schema.GroupResource) bool {
			return slices.Contains(r.record, resource)
		})...)
	}
	if err = r.begin(ctx); err != nil {
		return nil, errors.Join(err, r.Rig.Stop(ctx))
	}
	return r, nil
}

// begin begins the truth.
func (r *Rig) begin(ctx context.Context) (err error) {
	if r.Truth, err = truth.Record(ctx, r.Cluster.AdminConfig(), r.record...); err != nil || !r.rest {
		return err
	}
	return r.Truth.Rest(ctx, r.Cluster.AdminConfig())
}

// Audit returns what the apiservers have been asked so far, but by kwok and themselves.
func (r *Rig) Audit() ([]controlplane.AuditEvent, error) {
	return r.audit.Read(r.Cluster.APIServers()...)
}

// SetClock sets the clock of an apiserver ahead, or back if that is negative, and nobody else's.
func (r *Rig) SetClock(server *controlplane.APIServer, ahead time.Duration) error {
	// What it has noted until now must have been read by its clock of before.
	if _, err := r.Audit(); err != nil {
		return err
	}
	r.audit.SetClock(server, ahead)
	return clock.Set(server.PID(), ahead)
}

// Writes returns the writes so far.
func (r *Rig) Writes() ([]controlplane.AuditEvent, error) {
	events, err := r.Audit()
	return oracle.Writes(events), err
}

// Again begins the truth and the audit log anew, so that a long run need not keep all that happened in it.
func (r *Rig) Again(ctx context.Context) error {
	r.Truth.Stop()
	if err := r.begin(ctx); err != nil {
		return err
	}
	events, err := r.Audit()
	if err != nil {
		return err
	}
	r.undeclared = append(r.undeclared, oracle.Undeclared(oracle.Writes(events))...)
	r.proofs = r.proofs.And(oracle.Proofs(events))
	return r.audit.Forget(r.Cluster.APIServers()...)
}

// Wait waits for a condition; what says what for.
func Wait(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	return faultrig.Wait(ctx, limit, what, done)
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

// Stop ends the recording and every process. It returns an error, and keeps the evidence, if a kube-controller-manager wrote what package inventory has
// no rule for, unless the run forges such writes, or if Fresh KCM has asked too often how fresh its caches are.
func (r *Rig) Stop(ctx context.Context) error {
	err := r.promised()
	if err != nil {
		dir, kept := r.Keep()
		err = errors.Join(fmt.Errorf("%w; evidence is kept in %s", err, dir), kept)
	}
	if r.Truth != nil {
		r.Truth.Stop()
	}
	return errors.Join(err, r.Rig.Stop(ctx))
}

// Proofs is how often Fresh KCM has asked so far how fresh its caches are.
func (r *Rig) Proofs() (oracle.ProofLoad, error) {
	events, err := r.Audit()
	return r.proofs.And(oracle.Proofs(events)), err
}

// promised returns an error if what holds in every run did not.
func (r *Rig) promised() error {
	writes, err := r.Writes()
	if err != nil {
		return err
	}
	if undeclared := append(r.undeclared, oracle.Undeclared(writes)...); len(undeclared) > 0 && !r.forges {
		return fmt.Errorf("%d writes without a rule in package inventory; first: %s", len(undeclared), undeclared[0])
	}
	if r.Arm != P || r.binary != "" {
		return nil
	}
	load, err := r.Proofs()
	if most := mostProofs*load.Over.Seconds() + stalenessmonitor.Burst; err == nil && float64(load.Settled) > most {
		err = fmt.Errorf("%d proofs and probes in %s without those of a start; %.0f may be", load.Settled, load.Over.Round(time.Second), most)
	}
	return err
}
