// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"time"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Service accounts of the controllers, as the audit log names them.
const (
	DaemonSetController           = "daemon-set-controller"
	NodeController                = "node-controller"
	DeviceTaintEvictionController = "device-taint-eviction-controller"
	PodGarbageCollector           = "pod-garbage-collector"
)

var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

// Log follows the apiservers' audit logs; each call of Read takes up where the last one ended, so that it
// can be asked often. It is for one goroutine at a time.
type Log struct {
	offsets map[string]int64
	events  []controlplane.AuditEvent
	clocks  map[string]setClock // by the audit log's path
}

// setClock is by how much an apiserver's clock was set ahead, or back if that is negative, and a time between those that it gave before and after.
type setClock struct {
	ahead   time.Duration
	between time.Time
}

// SetClock says that an apiserver's clock was set just now. What it notes from then on is read as of everybody else's clock, for as long as half of
// that.
func (l *Log) SetClock(server *controlplane.APIServer, ahead time.Duration) {
	if l.clocks == nil {
		l.clocks = map[string]setClock{}
	}
	l.clocks[server.AuditLogPath()] = setClock{ahead, time.Now().Add(ahead / 2)}
}

// right returns the time that was, in place of one that a clock gave that was set.
func (s setClock) right(t time.Time) time.Time {
	if t.IsZero() || s.ahead == 0 || t.Before(s.between) == (s.ahead > 0) {
		return t
	}
	return t.Add(-s.ahead)
}

// Read returns every event so far, in the order of their timestamps. The result must not be changed.
func (l *Log) Read(servers ...*controlplane.APIServer) ([]controlplane.AuditEvent, error) {
	if l.offsets == nil {
		l.offsets = map[string]int64{}
	}
	known := len(l.events)
	for _, server := range servers {
		path := server.AuditLogPath()
		clock := l.clocks[path]
		offset, err := controlplane.ReadAudit(path, l.offsets[path], func(e controlplane.AuditEvent) {
			e.RequestReceivedTimestamp, e.StageTimestamp = clock.right(e.RequestReceivedTimestamp), clock.right(e.StageTimestamp)
			l.events = append(l.events, e)
		})
		if err != nil {
			return nil, err
		}
		l.offsets[path] = offset
	}
	if len(l.events) > known {
		slices.SortStableFunc(l.events, func(a, b controlplane.AuditEvent) int { return a.StageTimestamp.Compare(b.StageTimestamp) })
	}
	return l.events, nil
}

// Forget drops what there is so far: Read returns only events that come after it.
func (l *Log) Forget(servers ...*controlplane.APIServer) error {
	if _, err := l.Read(servers...); err != nil {
		return err
	}
	l.events = nil
	return nil
}

// Writes picks the answered writes, refused ones too.
func Writes(events []controlplane.AuditEvent) []controlplane.AuditEvent {
	var out []controlplane.AuditEvent
	for _, e := range events {
		if e.Stage == "ResponseComplete" && slices.Contains(writing, e.Verb) {
			out = append(out, e)
		}
	}
	return out
}

func object(e *controlplane.AuditEvent) string { return e.ObjectRef.Namespace + "/" + e.ObjectRef.Name }

func succeeded(e *controlplane.AuditEvent) bool {
	return e.ResponseStatus.Code >= 200 && e.ResponseStatus.Code < 300
}
