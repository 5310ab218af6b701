// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package composition

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/arms"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/schedule"
	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/traffic"
)

// The finalizer of an object that nothing uses is taken off after the longest wait, as it cannot be proven that nothing does. The cache has the object for as long
// as its watch brings nothing: its finalizer is not taken off again and again.
func TestFinalizerIsTakenOffOnce(t *testing.T) {
	const from, length = time.Minute, 20 * time.Minute
	for _, resource := range []string{"servicecidrs", "volumeattributesclasses", "podgroups"} {
		t.Run(resource, func(t *testing.T) {
			s := schedule.Schedule{Nodes: 2, Finalizers: true, Settle: 2 * time.Minute, Steps: []schedule.Step{
				{At: 40 * time.Second, Action: schedule.MakeProtected, Target: resource},
				{At: from - 2*time.Second, Action: schedule.Unprovable, For: length},
				{At: from - time.Second, Action: schedule.DeleteProtected, Target: resource},
				{At: from, Action: schedule.Hold, Target: resource, For: length},
			}}
			writes := map[arms.Arm]int32{}
			for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
				var n atomic.Int32 // Two lines may be logged at once.
				run(t, arm, s, func(line string) {
					if strings.Contains(line, " "+resource+"/") && (strings.Contains(line, "patch ") || strings.Contains(line, "update ")) {
						n.Add(1)
					}
				})
				writes[arm] = n.Load()
			}
			t.Log(writes)
			require.Positive(t, writes[arms.Stock])
			require.LessOrEqual(t, writes[arms.Ours], writes[arms.Stock]+2)
		})
	}
}

// A finalizer that cannot be taken off is tried as often as on stock, also where an event has the object looked at while the proof that it may be is slow. The
// queue of ServiceCIDRs gives one up after 16 tries until an event: what waits for a proof does not begin that anew.
func TestAFinalizerThatCannotBeTakenOff(t *testing.T) {
	const length = 40 * time.Minute
	for resource, by := range map[string]string{"servicecidrs": "ipaddresses", "volumeattributesclasses": "persistentvolumeclaims", "podgroups": "pods"} {
		r, o := traffic.Protected(resource, 0)
		for name, proofs := range map[string]schedule.Step{
			"slow": {Action: schedule.SlowReads, Target: by, Delay: 4 * time.Second, For: length},
			"none": {Action: schedule.Unprovable, For: length},
		} {
			for when, every := range map[string]time.Duration{"no event": length, "events soon": 3 * time.Second, "events late": 5 * time.Minute} {
				t.Run(resource+", "+name+", "+when, func(t *testing.T) {
					tries := map[arms.Arm]int{}
					for _, arm := range []arms.Arm{arms.Stock, arms.Ours} {
						synctest.Test(t, func(t *testing.T) {
							server, f, tr, _ := start(t, arm, schedule.Schedule{Nodes: 1, Finalizers: true})
							time.Sleep(time.Minute)
							tr.Do(schedule.Step{Action: schedule.MakeProtected, Target: resource})
							time.Sleep(10 * time.Second)
							server.Observe = func(_ model.Truth, by *model.Request, done bool) {
								if done && by.Write() && by.Resource == r {
									tries[arm]++
								}
							}
							f.Do(proofs, tr.After)
							f.Do(schedule.Step{Action: schedule.FailWrites, Target: resource, For: length}, tr.After)
							tr.Do(schedule.Step{Action: schedule.DeleteProtected, Target: resource})
							began := time.Now()
							for range 5 {
								time.Sleep(min(every, time.Until(began.Add(length-time.Second))))
								model.Change(server, r, o.GetNamespace(), o.GetName(), func(o model.Object) { o.SetAnnotations(map[string]string{"at": time.Now().String()}) })
							}
							time.Sleep(time.Until(began.Add(length - time.Second)))
						})
					}
					t.Log(tries)
					require.GreaterOrEqual(t, tries[arms.Stock], 16)
					require.LessOrEqual(t, tries[arms.Ours], tries[arms.Stock])
				})
			}
		}
	}
}
