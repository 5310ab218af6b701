// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	// maxQueued is how many bytes may wait in a stream that no fault holds; beyond it the client's own
	// back-pressure is passed on to the backend.
	maxQueued = 1 << 20
	// maxBatch bounds what is written between two flushes, so that a fault takes effect soon.
	maxBatch = 64 << 10
)

// stop says how the proxy itself finishes a stream, whatever still waits in it.
type stop int

const (
	stopNone   stop = iota
	stopSilent      // leave the client's side open without a byte
	stopGone        // send the ERROR event of 410, then end
	stopEnd         // end
	stopAbort       // cut
)

// stream is one watch of the client. The reader puts frames in, the handler's goroutine takes them out.
type stream struct {
	proxy   *Proxy
	id      int64
	req     Request
	backend *backend
	proto   bool
	since   time.Time
	// abandon cancels the backend's side.
	abandon context.CancelFunc
	// canWrite and canRead wake the two goroutines; both look at the state again when they wake.
	canWrite, canRead chan struct{}

	mu     sync.Mutex
	faults []*Fault
	queue  []*frame
	queued int // bytes in queue
	// late is kept by a fault until the next event is in the queue.
	late                *frame
	lateBy              *Fault
	initial             bool
	stop                stop
	lastSent, delivered Mark
}

// WatchStatus is one open watch stream.
type WatchStatus struct {
	ID      int64
	Request Request
	Backend string
	Since   time.Time
	// LastSent came last from the backend, LastDelivered was last handed to the client.
	LastSent, LastDelivered Mark
	// Waiting frames, and their bytes, are in the proxy.
	Waiting, WaitingBytes int
}

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (s *stream) wakeAll() {
	wake(s.canWrite)
	wake(s.canRead)
}

// attach puts a fault in force on the stream, also for what already waits in it.
func (s *stream) attach(f *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, f)
	f.metStream()
	for _, fr := range s.queue {
		if f.keeps(fr) {
			s.hold(fr, f)
		}
	}
	if f.b.ends != stopNone && s.stop == stopNone {
		s.stop = f.b.ends
		e := f.entry(ActionEnded)
		e.Stream = s.id
		s.proxy.journal.add(e)
	}
	s.wakeAll()
}

func (s *stream) detach(f *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.faults, f)
	if i < 0 {
		return
	}
	s.faults = slices.Delete(s.faults, i, i+1)
	if s.lateBy == f {
		s.enqueueLate()
	}
	if f.b.ends == stopSilent && s.stop == stopSilent {
		s.stop = stopEnd
		for _, other := range s.faults {
			if other.b.ends == stopSilent {
				s.stop = stopSilent
			}
		}
	}
	s.wakeAll()
}

// finish ends the stream from outside a fault.
func (s *stream) finish(how stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = how
	s.wakeAll()
}

func (s *stream) hold(fr *frame, f *Fault) {
	fr.heldBy = append(fr.heldBy, f)
	f.did(ActionHeld, s.id, fr)
}

// read moves frames from the backend into the queue until the body ends or the stream is abandoned.
func (s *stream) read(ctx context.Context, contentType string, body io.Reader) {
	s.proxy.waiting.opened(s.req, s.id)
	frames := newFramer(contentType, body)
	for s.awaitReadable(ctx) {
		raw, event, err := frames.next()
		if raw == nil && err == nil {
			continue
		}
		fr := &frame{raw: raw, event: event, arrived: time.Now()}
		if raw == nil {
			if ctx.Err() != nil {
				return // abandoned by the client or a fault: not the backend's end
			}
			fr.end = endAborted
			if err == io.EOF {
				fr.end = endClean
			}
			s.arrive(fr)
			return
		}
		if err != nil {
			klog.FromContext(ctx).Info("Passing on a watch frame that cannot be decoded", "stream", s.id, "resource", s.req.Resource, "err", err)
		}
		s.arrive(fr)
	}
}

func (s *stream) awaitReadable(ctx context.Context) bool {
	for ctx.Err() == nil {
		if s.readable() {
			return true
		}
		select {
		case <-s.canRead:
		case <-ctx.Done():
		}
	}
	return false
}

func (s *stream) readable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	keeping := false
	for _, f := range s.faults {
		if f.b.stopsReading {
			return false
		}
		keeping = keeping || f.b.delays || f.b.holds != nil
	}
	return keeping || s.queued < maxQueued
}

// arrive runs a new frame through the filters and queues it.
func (s *stream) arrive(fr *frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != stopNone {
		return
	}
	fr.initial = s.initial
	if fr.event.initialEnd {
		s.initial = false
	}
	if rv := fr.event.ResourceVersion; rv != "" {
		s.lastSent = Mark{ResourceVersion: rv, Time: fr.arrived}
		s.proxy.progress.sent(s.req.Resource, s.lastSent)
		s.proxy.waiting.sent(s.req, fr.event, fr.arrived)
	}
	for _, f := range s.faults {
		f.saw(fr)
	}
	if fr.end == notEnd {
		for _, f := range s.faults {
			if f.b.drops != nil && f.b.drops(fr.event) && f.take() {
				f.did(ActionDropped, s.id, fr)
				return
			}
		}
	}
	for _, f := range s.faults {
		if f.b.opaque == nil {
			continue
		}
		if err := f.rewriteFrame(fr, s.proto, s.id); err != nil {
			klog.Background().Error(err, "Cutting a watch", "fault", f.id, "stream", s.id)
			s.stop = stopAbort
			wake(s.canWrite)
			return
		}
	}
	s.order(fr)
}

// order queues a frame once, twice, or after the next.
func (s *stream) order(fr *frame) {
	var doubled, swapped *Fault
	if fr.end == notEnd && !fr.initial {
		for _, f := range s.faults {
			switch {
			case f.b.doubles != nil && f.b.doubles(fr.event):
				doubled = f
			case f.b.swaps != nil && f.b.swaps(fr.event):
				swapped = f
			}
		}
	}
	switch {
	case s.late == nil && swapped != nil:
		s.late, s.lateBy = fr, swapped
		return
	case s.late != nil && swapped == s.lateBy:
		swapped.did(ActionSwapped, s.id, s.late)
		s.enqueue(fr)
		s.enqueueLate()
	default:
		s.enqueueLate()
		s.enqueue(fr)
	}
	if doubled != nil {
		doubled.did(ActionDoubled, s.id, fr)
		again := *fr
		again.heldBy = nil
		s.enqueue(&again)
	}
}

func (s *stream) enqueueLate() {
	if s.late != nil {
		s.enqueue(s.late)
		s.late, s.lateBy = nil, nil
	}
}

func (s *stream) enqueue(fr *frame) {
	for _, f := range s.faults {
		if f.keeps(fr) {
			s.hold(fr, f)
		}
	}
	s.queue = append(s.queue, fr)
	s.queued += len(fr.raw)
	wake(s.canWrite)
}

// due takes the frames that may leave now. With none, wait is how long until the first may; negative means
// until something changes.
func (s *stream) due(now time.Time) (batch []*frame, wait time.Duration, how stop) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != stopNone {
		return nil, -1, s.stop
	}
	if s.proxy.gate.isShut() {
		// The server's buffers would take the frames, and they would count as delivered.
		return nil, -1, stopNone
	}
	var delay time.Duration
	for _, f := range s.faults {
		if f.b.delays {
			delay += f.currentDelay()
		}
	}
	wait = -1
	size := 0
	for _, fr := range s.queue {
		if slices.ContainsFunc(s.faults, func(f *Fault) bool { return f.b.holds != nil && f.b.holds(fr) }) {
			break
		}
		if left := fr.arrived.Add(delay).Sub(now); left > 0 {
			wait = left
			break
		}
		if size > 0 && size+len(fr.raw) > maxBatch {
			break
		}
		size += len(fr.raw)
		batch = append(batch, fr)
	}
	s.queue = slices.Delete(s.queue, 0, len(batch))
	s.queued -= size
	if len(batch) > 0 {
		wake(s.canRead)
	}
	return batch, wait, stopNone
}

// write moves frames from the queue to the client until the stream ends. It panics with
// http.ErrAbortHandler where the client must not see a clean end.
func (s *stream) write(ctx context.Context, w http.ResponseWriter) {
	flush := http.NewResponseController(w).Flush
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		batch, wait, how := s.due(time.Now())
		if how != stopNone && s.finishNow(w, how) {
			return
		}
		s.handing(batch)
		for _, fr := range batch {
			if _, err := w.Write(fr.raw); err != nil {
				s.discard(batch)
				return
			}
		}
		if len(batch) > 0 {
			if err := flush(); err != nil {
				s.discard(batch)
				return
			}
			switch s.markDelivered(batch) {
			case endClean:
				return
			case endAborted:
				panic(http.ErrAbortHandler)
			}
			continue
		}
		timer.Stop()
		if wait >= 0 {
			timer.Reset(wait)
		}
		select {
		case <-s.canWrite:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// finishNow carries out a stop and says whether the handler is done.
func (s *stream) finishNow(w http.ResponseWriter, how stop) bool {
	s.abandon()
	s.discardQueue()
	switch how {
	case stopSilent:
		return false
	case stopAbort:
		panic(http.ErrAbortHandler)
	case stopGone:
		if raw, err := errorFrame(goneStatus, s.proto); err == nil {
			_, _ = w.Write(raw)
		}
	}
	return true
}

// handing ends the waiting of frames before they are written: the client may act on the first of them before the last
// is.
func (s *stream) handing(batch []*frame) {
	for _, fr := range batch {
		s.proxy.waiting.delivered(s.req, s.id, fr.event.ResourceVersion)
	}
}

func (s *stream) markDelivered(batch []*frame) end {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fr := range batch {
		for _, f := range fr.heldBy {
			f.did(ActionReleased, s.id, fr)
		}
		if rv := fr.event.ResourceVersion; rv != "" {
			s.delivered = Mark{ResourceVersion: rv, Time: now}
			s.proxy.progress.delivered(s.req.Resource, s.delivered)
		}
	}
	return batch[len(batch)-1].end
}

func (s *stream) discard(frames []*frame) {
	for _, fr := range frames {
		for _, f := range fr.heldBy {
			f.did(ActionDropped, s.id, fr)
		}
	}
}

func (s *stream) discardQueue() {
	s.mu.Lock()
	frames := s.queue
	s.queue, s.queued = nil, 0
	s.mu.Unlock()
	s.discard(frames)
}

func (s *stream) status() WatchStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return WatchStatus{
		ID: s.id, Request: s.req, Backend: s.backend.name, Since: s.since,
		LastSent: s.lastSent, LastDelivered: s.delivered, Waiting: len(s.queue), WaitingBytes: s.queued,
	}
}
