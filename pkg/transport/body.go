// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"io"
	"sync"
)

const (
	// maxSized is up to which size a body gets room because it is said to have that size, in bytes: far more than an object has.
	maxSized = 8 << 20
	// maxKept is up to which size the memory of a body is kept for the next, in bytes. Most objects are smaller.
	maxKept = 64 << 10
)

// buffers have the memory of bodies that were read, which every write of a reconcile takes twice.
var buffers = sync.Pool{New: func() any { return &bytes.Buffer{} }}

// body is a body that was read to its end, to be read again. Its memory is another's once it is closed, so what is taken from it has to be copied.
type body struct {
	bytes.Reader
	buffer *bytes.Buffer
}

// readBody reads to the end; length is -1 if that is unknown. The body has what was read, also after an error.
func readBody(from io.Reader, length int64) (*body, error) {
	buffer := buffers.Get().(*bytes.Buffer)
	if length >= 0 && length <= maxSized {
		// The end must be seen: HTTP/2 resets the stream of a body that is closed before. Room for one more read keeps the buffer from growing.
		buffer.Grow(int(length) + bytes.MinRead)
	}
	_, err := buffer.ReadFrom(from)
	b := &body{buffer: buffer}
	b.Reset(buffer.Bytes())
	return b, err
}

// raw is what was read.
func (b *body) raw() []byte { return b.buffer.Bytes() }

// Close implements io.Closer. It may be called again, and nothing can be read after it.
func (b *body) Close() error {
	buffer := b.buffer
	if buffer == nil {
		return nil
	}
	b.buffer = nil
	b.Reset(nil)
	if buffer.Cap() <= maxKept {
		buffer.Reset()
		buffers.Put(buffer)
	}
	return nil
}
