// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"fmt"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
)

// Rig is what a story runs on.
type Rig struct {
	*faultrig.Rig
}

// AuditLog returns the apiserver's audit log.
func (r *Rig) AuditLog() string { return r.Cluster.APIServers()[0].AuditLogPath() }

// scene is a story about to begin: its rig, the truth about it, and who it is about.
type scene struct {
	Options
	rig     *Rig
	truth   *Truth
	subject KCM
	cancel  context.CancelFunc
}

// begin starts a cluster with so many nodes and begins to record. The context it returns ends with the scene.
func (o Options) begin(ctx context.Context, nodes int, kcmArgs ...string) (_ context.Context, _ *scene, err error) {
	o.say("starting the cluster", "%d nodes", nodes)
	ctx, cancel := context.WithCancel(ctx)
	s := &scene{Options: o, cancel: cancel}
	started, err := faultrig.Start(ctx, faultrig.Options{
		Cluster: controlplane.Options{Dir: o.Dir, Nodes: controlplane.NodeOptions{Count: nodes}},
		KCM:     controlplane.KCMOptions{Arm: o.Arm, ProcessOptions: controlplane.ProcessOptions{Args: kcmArgs}},
	})
	if err != nil {
		cancel()
		return nil, nil, err
	}
	s.rig = &Rig{started}
	if s.truth, err = s.rig.Record(ctx); err == nil {
		s.subject, err = describe(ctx, s.rig.KCM)
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.end(ctx))
	}
	return ctx, s, nil
}

// end stops everything.
func (s *scene) end(ctx context.Context) error {
	s.say("stopping the cluster", "")
	s.cancel() // an apiserver being stopped waits for watches
	if err := s.rig.Stop(ctx); err != nil {
		return fmt.Errorf("stopping the cluster: %w", err)
	}
	return nil
}
