// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"fmt"
	"net"
	"sync"
)

// door is a listener that can be closed and opened again on the same address. While it is closed the kernel
// refuses connections.
type door struct {
	address net.Addr

	mu     sync.Mutex
	opened *sync.Cond
	inner  net.Listener // nil while shut
	shut   int          // faults that keep it shut
	err    error        // why it will not open again
}

func newDoor(address string) (*door, error) {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	d := &door{address: inner.Addr(), inner: inner}
	d.opened = sync.NewCond(&d.mu)
	return d, nil
}

// Accept implements net.Listener. It waits while the door is shut.
func (d *door) Accept() (net.Conn, error) {
	for {
		d.mu.Lock()
		for d.inner == nil && d.err == nil {
			d.opened.Wait()
		}
		inner, err := d.inner, d.err
		d.mu.Unlock()
		if err != nil {
			return nil, err
		}
		c, err := inner.Accept()
		if err == nil {
			return c, nil
		}
		d.mu.Lock()
		same := d.inner == inner
		d.mu.Unlock()
		if same {
			return nil, err
		}
	}
}

// Addr implements net.Listener.
func (d *door) Addr() net.Addr { return d.address }

// Close implements net.Listener.
func (d *door) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = net.ErrClosed
	d.opened.Broadcast()
	if d.inner == nil {
		return nil
	}
	inner := d.inner
	d.inner = nil
	return inner.Close()
}

// close shuts the door; each close needs its open.
func (d *door) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut++
	if d.inner != nil {
		_ = d.inner.Close()
		d.inner = nil
	}
}

func (d *door) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut--
	if d.shut > 0 || d.err != nil {
		return
	}
	inner, err := net.Listen("tcp", d.address.String())
	if err != nil {
		d.err = fmt.Errorf("listen again on %s: %w", d.address, err)
	}
	d.inner = inner
	d.opened.Broadcast()
}
