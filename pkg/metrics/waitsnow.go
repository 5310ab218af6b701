// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
)

var longestWait = metrics.NewDesc(subsystem+"_longest_wait_seconds",
	"Longest wait of the controller that has not ended yet, because a cache may be stale: of an object that is not reconciled (waiting=\"object\"), and of a disruptive action that is put off (waiting=\"action\"). 0 if none waits; absent while the process does not lead.",
	[]string{"controller", "waiting"}, nil, metrics.ALPHA, "")

var recordedObjects = metrics.NewDesc(subsystem+"_recorded_objects",
	"Number of objects with recorded writes that a cache does not show yet. Absent while the process does not lead.",
	nil, nil, metrics.ALPHA, "")

// What may wait.
const (
	waitingObject = "object"
	waitingAction = "action"
)

// waitsNow is read at the time of a scrape, so that it costs nothing in between.
type waitsNow struct {
	metrics.BaseStableCollector

	mu   sync.Mutex
	read func() (now Waits, leading bool)
}

var waitCollector = &waitsNow{}

// Waits are the longest waits of each controller, and the number of objects with recorded writes.
type Waits struct {
	Longest  map[string]Waiting
	Recorded int
}

// Waiting is how long an object and a disruptive action have waited. Zero: none waits.
type Waiting struct{ Object, Action time.Duration }

// SetWaits has each scrape call read. Nothing is published unless it says that the process leads.
func SetWaits(read func() (now Waits, leading bool)) {
	waitCollector.mu.Lock()
	defer waitCollector.mu.Unlock()
	waitCollector.read = read
}

// DescribeWithStability implements metrics.StableCollector.
func (*waitsNow) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- longestWait
	ch <- recordedObjects
}

// CollectWithStability implements metrics.StableCollector.
func (w *waitsNow) CollectWithStability(ch chan<- metrics.Metric) {
	w.mu.Lock()
	read := w.read
	w.mu.Unlock()
	if read == nil {
		return
	}
	now, leading := read()
	if !leading {
		return
	}
	ch <- metrics.NewLazyConstMetric(recordedObjects, metrics.GaugeValue, float64(now.Recorded))
	for controller, w := range now.Longest {
		ch <- metrics.NewLazyConstMetric(longestWait, metrics.GaugeValue, w.Object.Seconds(), controller, waitingObject)
		ch <- metrics.NewLazyConstMetric(longestWait, metrics.GaugeValue, w.Action.Seconds(), controller, waitingAction)
	}
}
