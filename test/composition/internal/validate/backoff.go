// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"net/http"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/fresh-kcm/fresh-kcm/test/composition/internal/model"
)

// law is how long upstream's queues wait before the next try: so long after the first failure, twice as long after each further one.
type law struct{ first, most time.Duration }

var (
	// queues is workqueue's DefaultTypedControllerRateLimiter.
	queues = law{5 * time.Millisecond, 1000 * time.Second}
	// jobQueue is DefaultJobApiBackOff and MaxJobApiBackOff of the job controller.
	jobQueue = law{time.Second, time.Minute}
)

func (l law) after(failures int) time.Duration {
	wait := l.first
	for ; failures > 1 && wait < l.most; failures-- {
		wait *= 2
	}
	return min(wait, l.most)
}

var kindOfJobs = batchv1.SchemeGroupVersion.WithKind("Job").Kind

// backoff notes that an owner waits after a pod could not be made or deleted, or a revision made, with which a DaemonSet begins, until the next try. By how many events an owner is tried in between, two runs
// of an arm differ, and one try more doubles the wait. How often it is tried is judged by itself.
func (j *Judge) backoff(r *model.Request) {
	evicts := strings.Contains(r.Agent, "node-controller") || byPodGC(r) || byCollector(r)
	pods := r.Resource == model.Pods && (r.Verb == "create" || r.Verb == "delete" && !evicts)
	at, waits := time.Since(j.began), j.record.Backoff[r.Owner]
	last := len(waits) - 1
	// While it fails, so does a reconcile of which no more than the status is written, but not once more for each write of one reconcile.
	status := r.Subresource == "status" && r.Verb == "update" && last >= 0 && j.failures[r.Owner] > 0 && r.Sent.Sub(j.began)-waits[last].From >= queues.first
	if !pods && !status && (r.Resource != model.Revisions || r.Verb != "create") || r.Owner.Name == "" {
		return
	}
	fails := r.Code < http.StatusOK || r.Code >= http.StatusMultipleChoices
	switch {
	case !fails && status:
		return // It says nothing of the pods.
	case last >= 0:
		waits[last].For = min(waits[last].For, r.Sent.Sub(j.began)-waits[last].From)
	}
	if !fails {
		// The reconcile that has made a revision goes on to its pods, and may fail after all.
		if pods {
			delete(j.failures, r.Owner)
		}
		return
	}
	j.failures[r.Owner]++
	l := queues
	if r.Owner.Kind == kindOfJobs {
		l = jobQueue
	}
	j.record.Backoff[r.Owner] = append(waits, Span{From: at, For: l.after(j.failures[r.Owner])})
}

// without are the spans less what of them is in the others, which do not overlap.
func without(spans, others []Span) []Span {
	out := make([]Span, 0, len(spans))
	for _, s := range spans {
		from, end := s.From, s.From+s.For
		for _, o := range others {
			s.For -= max(0, min(end, o.From+o.For)-max(from, o.From))
		}
		out = append(out, s)
	}
	return out
}
