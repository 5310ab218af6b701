// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// maxFrame bounds what a broken length prefix can make the proxy allocate; the apiserver's objects stay far
// below, because etcd refuses them.
const maxFrame = 64 << 20

// frame is one watch event as it is on the wire, or the backend's end of the stream.
type frame struct {
	raw     []byte
	event   Event
	initial bool // part of a WatchList stream's initial events
	end     end
	arrived time.Time
	// heldBy are the faults that kept this frame back, and are credited when it leaves.
	heldBy []*Fault
}

type end int

const (
	notEnd end = iota
	endClean
	endAborted
)

// framer cuts a watch response's body into frames.
type framer interface {
	// next returns io.EOF at the clean end of the body.
	next() (raw []byte, e Event, err error)
}

func newFramer(contentType string, body io.Reader) framer {
	mediaType, _, _ := mime.ParseMediaType(contentType)
	switch mediaType {
	case runtime.ContentTypeJSON:
		return &jsonFramer{dec: json.NewDecoder(body)}
	case runtime.ContentTypeProtobuf:
		return &protobufFramer{body: bufio.NewReader(body)}
	default:
		return &opaqueFramer{body: body}
	}
}

type jsonFramer struct{ dec *json.Decoder }

func (f *jsonFramer) next() ([]byte, Event, error) {
	var raw json.RawMessage
	if err := f.dec.Decode(&raw); err != nil {
		return nil, Event{}, err
	}
	e, err := decodeJSONEvent(raw)
	// The newline is how the apiserver's own encoder ends an object.
	return append(raw, '\n'), e, err
}

type protobufFramer struct{ body *bufio.Reader }

func (f *protobufFramer) next() ([]byte, Event, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(f.body, prefix[:]); err != nil {
		return nil, Event{}, err
	}
	size := binary.BigEndian.Uint32(prefix[:])
	if size > maxFrame {
		return nil, Event{}, fmt.Errorf("protobuf watch frame of %d bytes is over the limit of %d", size, maxFrame)
	}
	raw := make([]byte, len(prefix)+int(size))
	copy(raw, prefix[:])
	if _, err := io.ReadFull(f.body, raw[len(prefix):]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, Event{}, fmt.Errorf("protobuf watch frame of %d bytes: %w", size, err)
	}
	e, err := decodeProtobufEvent(raw[len(prefix):])
	return raw, e, err
}

// opaqueFramer serves encodings the proxy does not read (CBOR): time-based faults work, event filters do not.
type opaqueFramer struct{ body io.Reader }

func (f *opaqueFramer) next() ([]byte, Event, error) {
	buf := make([]byte, 16<<10)
	n, err := f.body.Read(buf)
	if n > 0 {
		return buf[:n], Event{}, nil
	}
	return nil, Event{}, err
}

// wantsProtobuf says which encoding the apiserver would choose for an Accept header.
func wantsProtobuf(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		mediaType, _, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		switch mediaType {
		case runtime.ContentTypeProtobuf:
			return true
		case runtime.ContentTypeJSON, "*/*", "application/*":
			return false
		}
	}
	return false
}
