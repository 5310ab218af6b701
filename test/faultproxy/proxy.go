// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// Proxy is one running proxy. Its methods may be called from any goroutine.
type Proxy struct {
	url           string
	clientSubject []byte
	server        *http.Server
	errorLog      *log.Logger
	gate          *gate
	door          *door
	conns         *connSet
	backends      []*backend
	counter       counter
	journal       journal
	progress      *progress
	waiting       *waiting
	cancel        context.CancelFunc
	unregister    func() bool
	served        chan struct{}
	closeOnce     sync.Once
	// inflight counts handlers; enter refuses new ones once closing is set.
	inflight sync.WaitGroup

	mu      sync.Mutex
	closing bool
	current *backend
	faults  []*Fault
	opaque  sets.Set[schema.GroupResource] // whose versions were ever made opaque
	streams map[int64]*stream
	lastID  int64
}

// Start serves until ctx is done or Close is called. The client can connect as soon as it returns.
func Start(ctx context.Context, opts Options) (*Proxy, error) {
	err := opts.complete()
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	logger := klog.FromContext(ctx).WithName("faultproxy")
	p := &Proxy{
		gate:     newGate(),
		conns:    &connSet{conns: map[*trackedConn]struct{}{}},
		counter:  counter{counts: Counts{}},
		journal:  journal{size: opts.JournalSize},
		progress: newProgress(),
		waiting:  newWaiting(),
		served:   make(chan struct{}),
		streams:  map[int64]*stream{},
		opaque:   sets.New[schema.GroupResource](),
		errorLog: log.New(logWriter{logger}, "", 0),
	}
	if opts.ClientCert != nil {
		leaf, err := x509.ParseCertificate(opts.ClientCert.Certificate[0])
		if err != nil {
			return nil, fmt.Errorf("faultproxy: client certificate: %w", err)
		}
		p.clientSubject = leaf.RawSubject
	}
	for _, b := range opts.Backends {
		backend, err := newBackend(b, opts.ClientCert, p.conns)
		if err != nil {
			return nil, fmt.Errorf("faultproxy: %w", err)
		}
		p.backends = append(p.backends, backend)
	}
	p.current = p.backends[0]

	tlsConfig := &tls.Config{
		Certificates: []tls.Certificate{opts.ServingCert},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if opts.ClientCAs != nil {
		tlsConfig.ClientCAs = opts.ClientCAs
		tlsConfig.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if p.door, err = newDoor(opts.Listen); err != nil {
		return nil, fmt.Errorf("faultproxy: listen on %s: %w", opts.Listen, err)
	}
	p.url = "https://" + p.door.Addr().String()

	serving, cancel := context.WithCancel(klog.NewContext(ctx, logger))
	p.cancel = cancel
	p.server = &http.Server{
		Handler:     &handler{p},
		TLSConfig:   tlsConfig,
		ErrorLog:    p.errorLog,
		BaseContext: func(net.Listener) context.Context { return serving },
	}
	go func() {
		defer close(p.served)
		err := p.server.ServeTLS(gatedListener{Listener: p.door, gate: p.gate}, "", "")
		if !errors.Is(err, http.ErrServerClosed) {
			logger.Error(err, "Serving ended", "url", p.url)
		}
	}()
	p.unregister = context.AfterFunc(ctx, p.Close)
	return p, nil
}

// URL is where the client finds the proxy, https://address:port.
func (p *Proxy) URL() string { return p.url }

// Close cuts all connections, ends all streams and returns when nothing of the proxy runs any more. What
// faults hold is dropped.
func (p *Proxy) Close() {
	p.closeOnce.Do(func() {
		p.unregister()
		p.mu.Lock()
		p.closing = true
		faults := slices.Clone(p.faults)
		p.mu.Unlock()
		p.cancel()
		p.gate.end()
		_ = p.server.Close()
		p.conns.end()
		for _, f := range faults {
			f.Clear()
		}
		<-p.served
		p.inflight.Wait()
		for _, b := range p.backends {
			b.closeIdle()
		}
	})
}

func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	p.inflight.Add(1)
	return true
}

// Inject puts an effect in force on a target, for the streams that run and, unless Target.Running is set, for
// requests and streams to come.
func (p *Proxy) Inject(t Target, e Effect) (*Fault, error) {
	if t.Resource.Resource == "" {
		return nil, fmt.Errorf("faultproxy: inject %T: %w", e, errNoResource)
	}
	if e == nil {
		return nil, errors.New("faultproxy: inject: no effect given")
	}
	b, err := e.behaviour()
	if err != nil {
		return nil, fmt.Errorf("faultproxy: inject %T: %w", e, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.newFaultLocked(t, b)
	if b.opaque != nil {
		p.opaque.Insert(t.Resource)
	}
	for _, s := range p.streams {
		if f.meets(s.req) {
			s.attach(f)
		}
	}
	return f, nil
}

// BlackHole freezes the client's TCP connections in both directions, new ones included, until it is cleared:
// no byte, no ping answer, no close. Requests already forwarded run on.
func (p *Proxy) BlackHole() *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.newFaultLocked(Target{}, behaviour{kind: kindBlackHole})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stats.Streams = p.gate.freeze()
	return f
}

// Refuse cuts the client's connections, and has new ones refused until it is cleared, as by a host whose
// apiserver is down. Without it the proxy accepts connections even when the backend does not, and says 503.
func (p *Proxy) Refuse() *Fault {
	p.door.close()
	p.mu.Lock()
	f := p.newFaultLocked(Target{}, behaviour{kind: kindRefuse})
	p.mu.Unlock()
	cut := p.gate.closeConns()
	f.mu.Lock()
	f.stats.Streams = cut
	f.mu.Unlock()
	return f
}

const (
	kindBlackHole = "BlackHole"
	kindRefuse    = "Refuse"
)

func (p *Proxy) newFaultLocked(t Target, b behaviour) *Fault {
	p.lastID++
	id := strconv.FormatInt(p.lastID, 10)
	f := &Fault{
		proxy: p, id: id, target: t, b: b, cleared: make(chan struct{}), left: b.limit, delay: b.delay,
		stats: Stats{ID: id, Effect: b.kind, Resource: t.Resource, Since: time.Now()},
	}
	p.faults = append(p.faults, f)
	p.journal.add(f.entry(ActionInjected))
	return f
}

func (p *Proxy) clear(f *Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.faults, f)
	if i < 0 {
		return
	}
	p.faults = slices.Delete(p.faults, i, i+1)
	f.mu.Lock()
	f.stats.Until = time.Now()
	f.mu.Unlock()
	p.journal.add(f.entry(ActionCleared))
	close(f.cleared)
	switch f.b.kind {
	case kindBlackHole:
		p.gate.thaw()
	case kindRefuse:
		p.door.open()
	}
	for _, s := range p.streams {
		s.detach(f)
		s.wakeAll()
	}
}

// Handover is how SwitchBackend takes the client off the old backend.
type Handover int

const (
	// EndWatches ends the running watches cleanly; other requests finish on the old backend.
	EndWatches Handover = iota
	// CutConnections cuts the client's connections with everything on them.
	CutConnections
)

// SwitchBackend moves the client to another backend. What faults hold for the running watches is dropped.
func (p *Proxy) SwitchBackend(name string, how Handover) error {
	i := slices.IndexFunc(p.backends, func(b *backend) bool { return b.name == name })
	if i < 0 {
		return fmt.Errorf("faultproxy: no backend %q", name)
	}
	p.mu.Lock()
	p.current = p.backends[i]
	p.journal.add(Entry{Time: time.Now(), Action: ActionSwitched, Effect: name})
	for _, s := range p.streams {
		if s.backend != p.current {
			s.finish(map[Handover]stop{EndWatches: stopEnd, CutConnections: stopAbort}[how])
		}
	}
	p.mu.Unlock()
	if how == CutConnections {
		p.gate.closeConns()
	}
	return nil
}

// match returns the faults that a new request meets, and the backend it goes to.
func (p *Proxy) match(req Request) ([]*Fault, *backend) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*Fault
	for _, f := range p.faults {
		if !f.target.Running && f.meets(req) {
			out = append(out, f)
		}
	}
	return out, p.current
}

// open registers a watch together with the faults it meets, so that none injected meanwhile is missed.
func (p *Proxy) open(req Request, b *backend, proto bool, abandon context.CancelFunc) *stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastID++
	s := &stream{
		proxy: p, id: p.lastID, req: req, backend: b, proto: proto, since: time.Now(), abandon: abandon,
		canWrite: make(chan struct{}, 1), canRead: make(chan struct{}, 1), initial: req.SendInitialEvents,
	}
	if b != p.current {
		s.stop = stopEnd // the backend was switched while the request was under way
	}
	p.streams[s.id] = s
	for _, f := range p.faults {
		// Gone ends what runs; it answers new watches before they come here.
		if !f.target.Running && f.b.ends != stopGone && f.meets(req) {
			s.attach(f)
		}
	}
	return s
}

// drop forgets a watch and frees what was held for it.
func (p *Proxy) drop(s *stream) {
	p.mu.Lock()
	delete(p.streams, s.id)
	p.mu.Unlock()
	s.discardQueue()
}

func (p *Proxy) wakeStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.streams {
		s.wakeAll()
	}
}

// Faults returns the faults in force, oldest first.
func (p *Proxy) Faults() []*Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.faults)
}

// Requests returns a copy of the request counters; Counts.Since tells what is new.
func (p *Proxy) Requests() Counts { return p.counter.snapshot() }

// Journal returns the latest interventions, oldest first.
func (p *Proxy) Journal() []Entry { return p.journal.snapshot() }

// Watches returns the open watch streams, oldest first. Those that DropStream left half open are among them.
func (p *Proxy) Watches() []WatchStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]WatchStatus, 0, len(p.streams))
	for _, s := range p.streams {
		out = append(out, s.status())
	}
	slices.SortFunc(out, func(a, b WatchStatus) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// WaitingSince returns when the backend sent the oldest event of a resource that a client (Request.Client) was
// not handed; zero if it has all. It holds on when the stream ends and the event is sent again on another.
func (p *Proxy) WaitingSince(gr schema.GroupResource, client string) time.Time {
	return p.waiting.since(waitingKey{gr, client})
}

// Progress says how far the backend and the client are with a resource.
func (p *Proxy) Progress(gr schema.GroupResource) Progress { return p.progress.get(gr) }

// logWriter turns the HTTP server's log, which knows nothing of contexts, into contextual log lines.
type logWriter struct{ logger klog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.logger.V(4).Info("HTTP server", "message", string(bytes.TrimSpace(b)))
	return len(b), nil
}
