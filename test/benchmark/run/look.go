// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"context"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/measure"
	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
)

// look is one look at the processes.
type look struct {
	kcm, apiserver       measure.Metrics
	manager, server, etc measure.Process
}

// look looks at all. Before the workload the scrapes come first and after it last, so that what they cost is not in it.
func (t *turn) look(ctx context.Context, series *measure.Series, before bool) (l look, err error) {
	scrapes := func() error {
		if l.kcm, err = series.Scrape(ctx); err != nil {
			return err
		}
		l.apiserver, err = t.session.apiserver(ctx)
		return err
	}
	processes := func() error {
		for pid, p := range map[int]*measure.Process{
			t.pid: &l.manager, t.cluster.APIServers()[0].PID(): &l.server, t.cluster.Etcd().PID(): &l.etc,
		} {
			if before {
				if err := measure.ResetPeak(pid); err != nil {
					return err
				}
			}
			if *p, err = measure.ReadProcess(pid); err != nil {
				return err
			}
		}
		return nil
	}
	steps := []func() error{processes, scrapes}
	if before {
		steps = []func() error{scrapes, processes}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return l, err
		}
	}
	return l, nil
}

// figures notes what was taken between two looks. An alarm is a false one if all was calm.
func (l look) figures(after look, calm bool, into map[string]float64) {
	into[sample.KCMCPU] = after.manager.CPU - l.manager.CPU
	into[sample.APIServerCPU] = after.server.CPU - l.server.CPU
	into[sample.EtcdCPU] = after.etc.CPU - l.etc.CPU
	into[sample.KCMRSS], into[sample.APIServerRSS], into[sample.EtcdRSS] = after.manager.Peak, after.server.Peak, after.etc.Peak
	into[sample.KCMHeap] = after.kcm.Sum("go_memstats_heap_inuse_bytes")
	into[sample.KCMAllocated] = after.kcm.Sum("go_memstats_alloc_bytes_total") - l.kcm.Sum("go_memstats_alloc_bytes_total")
	into[sample.KCMAllocs] = after.kcm.Sum("go_memstats_mallocs_total") - l.kcm.Sum("go_memstats_mallocs_total")
	if caches, _ := after.kcm.Caches(); caches > 0 {
		into[sample.Caches] = float64(caches)
		if calm {
			into[sample.FalseAlarms] = after.kcm.Alarms() - l.kcm.Alarms()
		}
	}
	into[sample.QueueP50] = measure.Quantile(0.5, "workqueue_queue_duration_seconds", l.kcm, after.kcm)
	into[sample.QueueP99] = measure.Quantile(0.99, "workqueue_queue_duration_seconds", l.kcm, after.kcm)
}
