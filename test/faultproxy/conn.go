// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"net"
	"sync"
	"time"
)

// gate freezes the client's TCP connections: while it is shut no byte moves in either direction, so not even
// an HTTP/2 ping is answered and no FIN is sent.
type gate struct {
	mu      sync.Mutex
	shut    int           // black holes active
	opened  chan struct{} // closed whenever the gate is open
	conns   map[*gatedConn]struct{}
	closing []net.Conn // closed by the server while frozen: the peer learns of it at the thaw
	ended   bool
}

func newGate() *gate {
	opened := make(chan struct{})
	close(opened)
	return &gate{opened: opened, conns: map[*gatedConn]struct{}{}}
}

// freeze shuts the gate and returns the number of connections it froze.
func (g *gate) freeze() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return 0
	}
	if g.shut == 0 {
		g.opened = make(chan struct{})
	}
	g.shut++
	return len(g.conns)
}

// thaw takes back one freeze.
func (g *gate) thaw() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended || g.shut == 0 {
		return
	}
	g.shut--
	if g.shut == 0 {
		g.openLocked()
	}
}

func (g *gate) openLocked() {
	close(g.opened)
	for _, c := range g.closing {
		_ = c.Close()
	}
	g.closing = nil
}

// closeConns cuts every client connection and returns how many there were.
func (g *gate) closeConns() int {
	g.mu.Lock()
	conns := make([]*gatedConn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	g.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
	return len(conns)
}

// end opens the gate for good.
func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return
	}
	g.ended = true
	if g.shut > 0 {
		g.openLocked()
	}
	g.shut = 0
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut > 0
}

func (g *gate) openSignal() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

// gatedListener wraps what it accepts. A connection made while the gate is shut is accepted and hangs, which
// to the client is the same as one left in the kernel's backlog.
type gatedListener struct {
	net.Listener
	gate *gate
}

func (l gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	gc := &gatedConn{Conn: c, gate: l.gate, done: make(chan struct{})}
	l.gate.mu.Lock()
	l.gate.conns[gc] = struct{}{}
	l.gate.mu.Unlock()
	return gc, nil
}

type gatedConn struct {
	net.Conn
	gate *gate
	done chan struct{}
	once sync.Once
}

// pass returns once the gate is open; it fails if the connection is closed before that.
func (c *gatedConn) pass() error {
	for {
		opened := c.gate.openSignal()
		select {
		case <-opened:
			// A gate that was shut again in the meantime has a new signal.
			if c.gate.openSignal() == opened {
				return nil
			}
		case <-c.done:
			return net.ErrClosed
		}
	}
}

func (c *gatedConn) Read(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	// What came in while the gate was being shut is not seen before the thaw.
	if perr := c.pass(); perr != nil {
		return 0, perr
	}
	return n, err
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *gatedConn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.done)
		c.gate.mu.Lock()
		defer c.gate.mu.Unlock()
		delete(c.gate.conns, c)
		if c.gate.shut > 0 {
			// Stops a reader that is still inside the kernel, without telling the peer.
			_ = c.SetDeadline(time.Unix(1, 0))
			c.gate.closing = append(c.gate.closing, c.Conn)
			return
		}
		err = c.Conn.Close()
	})
	return err
}

// connSet remembers the connections to the backends, so that Close can end them all at once.
type connSet struct {
	mu    sync.Mutex
	conns map[*trackedConn]struct{}
	ended bool
}

type trackedConn struct {
	net.Conn
	set *connSet
}

func (s *connSet) track(c net.Conn) (net.Conn, error) {
	tc := &trackedConn{Conn: c, set: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	s.conns[tc] = struct{}{}
	return tc, nil
}

func (s *connSet) end() {
	s.mu.Lock()
	s.ended = true
	conns := s.conns
	s.conns = map[*trackedConn]struct{}{}
	s.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

func (c *trackedConn) Close() error {
	c.set.mu.Lock()
	delete(c.set.conns, c)
	c.set.mu.Unlock()
	return c.Conn.Close()
}
