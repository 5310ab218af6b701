// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/faults"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// While a value of a quota waits, as nothing can be read of a broken custom resource that it counts, the quota is recalculated when a proof may be possible, and no more often: each
// time all objects of the namespace are counted.
func TestAQuotaOfWhichAValueWaitsIsSeldomRecalculated(t *testing.T) {
	const (
		waits = 50 * time.Second
		// times is how often the history is played: in what order the values are looked at is chance.
		times = 10
	)
	looks := map[arms.Arm]int64{} // at the most
	for i := range 2 * times {
		arm := []arms.Arm{arms.Stock, arms.Ours}[i%2]
		synctest.Test(t, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 1, Monitor: true, Tenants: []schedule.Tenant{{Name: tenant, Pods: 5, Hard: 6}}}
			server := model.New()
			f := faults.New(server)
			server.Fate = f.Fate
			tr := traffic.Start(server, s)
			server.Changed = func(_ model.Truth, _ *model.Resource, old, now model.Object) { tr.Changed(old, now) }
			var recalculated atomic.Int64
			logger := funcr.New(func(_, line string) {
				if strings.Contains(line, `"Finished syncing resource quota"`) {
					recalculated.Add(1)
				}
			}, funcr.Options{Verbosity: 4})
			manager, err := arms.Start(klog.NewContext(context.Background(), logger), arm, server, flagsFor(s, tr.Measured(func(model.Truth, schedule.Autoscaler) {})))
			require.NoError(t, err)
			defer manager.End()
			defer tr.End()
			time.Sleep(20 * time.Second)
			f.Do(schedule.Step{Action: schedule.Broken, Target: "widgets", N: 4, For: time.Hour}, tr.After)
			time.Sleep(80 * time.Second)
			before := recalculated.Load()
			tr.Do(schedule.Step{Action: schedule.Empty, Target: tenant, N: 5})
			time.Sleep(waits)
			looks[arm] = max(looks[arm], recalculated.Load()-before)
		})
	}
	t.Logf("recalculated %d times, by stock %d times", looks[arms.Ours], looks[arms.Stock])
	require.NotZero(t, looks[arms.Stock])
	require.LessOrEqual(t, looks[arms.Ours], looks[arms.Stock]+int64(waits/(2*time.Second)))
}
