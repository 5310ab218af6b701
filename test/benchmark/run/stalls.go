// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"
	"slices"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/spec"
	"github.com/fresh-kcm/fresh-kcm/test/internal/stalledwatch"
)

// noticeLimit bounds how long a round waits for what is to be noticed. It judges nothing.
const noticeLimit = 2 * time.Minute

// stalls holds watches, and notes after what times the monitor said so.
func (t *turn) stalls(ctx context.Context, s spec.Stalls) error {
	kinds, err := stalledwatch.Kinds()
	if err != nil {
		return err
	}
	// What nobody reads who is protected is asked about too seldom for this.
	page, err := stalledwatch.ReadPage(ctx, t.kcm)
	if err != nil {
		return err
	}
	kinds = slices.DeleteFunc(kinds, func(k stalledwatch.Kind) bool {
		c, ok := stalledwatch.Find(page, k.Resource.GroupResource())
		return !ok || !k.Busy && !c.Protected
	})
	objects, err := stalledwatch.Make(ctx, t.cluster.AdminConfig(), kinds)
	if err != nil {
		return err
	}
	stop := objects.KeepBusy(ctx)
	defer stop()
	busy, quiet := []time.Duration{}, []time.Duration{}
	for i := range s.Rounds {
		t.say("holding %d watches, round %d of %d", len(kinds), i+1, s.Rounds)
		took, err := objects.Hold(ctx, t.kcm, t.proxy.Inject, noticeLimit)
		if err != nil {
			return err
		}
		for i, k := range kinds {
			if k.Busy {
				busy = append(busy, took[i])
			} else {
				quiet = append(quiet, took[i])
			}
		}
	}
	t.figures[sample.BusyP50], t.figures[sample.BusyP99] = quantiles(busy)
	t.figures[sample.QuietP50], t.figures[sample.QuietP99] = quantiles(quiet)
	return nil
}
