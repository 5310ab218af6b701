// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package story

import (
	"context"
	"errors"
	"fmt"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// scene is a story about to begin: its rig, the truth about it, and who it is about.
type scene struct {
	Options
	rig     *faultrig.Rig
	truth   *truth.Recorder
	subject KCM
}

// begin starts a cluster with so many nodes and begins to record.
func (o Options) begin(ctx context.Context, nodes int, kcmArgs ...string) (_ *scene, err error) {
	o.say("starting the cluster", "%d nodes", nodes)
	s := &scene{Options: o}
	s.rig, err = faultrig.Start(ctx, faultrig.Options{
		Cluster: controlplane.Options{Dir: o.Dir, Nodes: controlplane.NodeOptions{Count: nodes}},
		KCM:     controlplane.KCMOptions{Arm: o.Arm, ProcessOptions: controlplane.ProcessOptions{Args: kcmArgs}},
	})
	if err != nil {
		return nil, err
	}
	// The admin's configuration leads to the apiserver, and not to the proxy.
	if s.truth, err = truth.Record(ctx, s.rig.Cluster.AdminConfig(), recorded...); err == nil {
		s.subject, err = describe(ctx, s.rig.KCM)
	}
	if err != nil {
		return nil, errors.Join(err, s.end(ctx))
	}
	return s, nil
}

// apiServer is the only one.
func (s *scene) apiServer() *controlplane.APIServer { return s.rig.Cluster.APIServers()[0] }

// wronged counts the pods of a group whose deletion so far by kube-controller-manager their node's true state did not call for.
func (s *scene) wronged(ctx context.Context, group string) (int, error) {
	if err := s.truth.Sync(ctx); err != nil {
		return 0, err
	}
	var log oracle.Log
	events, err := log.Read(s.apiServer())
	return wronged(s.truth, events, group), err
}

// end stops everything. It returns an error if the record has a gap: figures of it mean nothing.
func (s *scene) end(ctx context.Context) (err error) {
	s.say("stopping the cluster", "")
	if s.truth != nil {
		s.truth.Stop() // an apiserver being stopped waits for watches
		err = s.truth.Err()
	}
	if stop := s.rig.Stop(ctx); stop != nil {
		err = errors.Join(err, fmt.Errorf("stopping the cluster: %w", stop))
	}
	return err
}
