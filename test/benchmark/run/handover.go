// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

// handover has a successor take over on the apiserver that lags. From then on it is the turn's kube-controller-manager: CPU,
// memory and requests are its own.
func (t *turn) handover(ctx context.Context, h spec.Handover) error {
	t.lagging.Hold()
	defer t.lagging.Release()
	ds := workload.DaemonSet(daemonSetName, workload.MaxUnavailable(1))
	ds.Namespace = t.namespace
	ds, err := t.client.AppsV1().DaemonSets(t.namespace).Create(ctx, ds, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	enough := max(1, t.spec.Nodes*h.Percent/100)
	t.say("waiting until %d of %d pods are made", enough, t.spec.Nodes)
	if err := t.atOnce(ctx, "the first pods", func() (bool, error) {
		return oracle.DigestOf(t.truth, ds.UID).PodsCreated >= enough, nil
	}); err != nil {
		return err
	}
	t.say("handing over")
	if err := t.succeed(ctx); err != nil {
		return err
	}
	t.led = time.Now()
	t.say("the successor leads beside an apiserver that lags")
	if err := faultrig.Sleep(ctx, h.Lag.Duration); err != nil {
		return err
	}
	if t.lagging.Held() == 0 {
		return errors.New("nothing was held back between etcd and the apiserver that is to lag")
	}
	t.lagging.Release()
	return t.daemonSetDone(ctx)
}

// succeed kills the kube-controller-manager and starts its successor. Nobody scrapes meanwhile.
func (t *turn) succeed(ctx context.Context) error {
	t.replacing.Lock()
	defer t.replacing.Unlock()
	if err := t.kcm.Kill(); err != nil {
		return err
	}
	if err := t.resign(ctx, t.kcm); err != nil {
		return err
	}
	options := t.options
	options.Name, options.Server = t.namespace+"-successor", t.behind.URL()
	options.FeatureGates = map[string]bool{"WatchListClient": false}
	kcm, err := t.cluster.StartKCM(ctx, options)
	if err != nil {
		return err
	}
	t.kcm, t.pid = kcm, kcm.PID()
	return nil
}

// firstRight notes when the successor began to do right: its first write in the turn's namespace after the last wrong action.
// Without one there is no such figure.
func (t *turn) firstRight(events []controlplane.AuditEvent, wrong []oracle.Violation) {
	after := t.led
	for _, v := range wrong {
		if v.Time.After(after) {
			after = v.Time
		}
	}
	writes := oracle.WritesIn(events, t.namespace)
	if i := slices.IndexFunc(writes, func(at time.Time) bool { return at.After(after) }); i >= 0 {
		t.figures[sample.FirstRight] = writes[i].Sub(t.led).Seconds()
	}
}
