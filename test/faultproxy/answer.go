// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
)

const protobufWatch = runtime.ContentTypeProtobuf + ";stream=watch"

// answer is what a fault says to a request instead of the backend.
type answer struct {
	status metav1.Status
	// inStream answers 200 with one ERROR event, which is how the apiserver refuses a watch that has passed
	// validation.
	inStream bool
}

func (a *answer) write(w http.ResponseWriter, accept string) error {
	proto := wantsProtobuf(accept)
	var body []byte
	var err error
	code := int(a.status.Code)
	contentType := runtime.ContentTypeJSON
	switch {
	case a.inStream && proto:
		contentType = protobufWatch
		body, err = errorFrame(a.status, true)
	case a.inStream:
		body, err = errorFrame(a.status, false)
	case proto:
		contentType = runtime.ContentTypeProtobuf
		body, err = encodeStatus(a.status, true)
	default:
		body, err = encodeStatus(a.status, false)
	}
	if err != nil {
		return err
	}
	if a.inStream {
		code = http.StatusOK
	} else if d := a.status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_, err = w.Write(body)
	return err
}

func encodeStatus(s metav1.Status, proto bool) ([]byte, error) {
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if !proto {
		return json.Marshal(s)
	}
	var buf bytes.Buffer
	err := protobuf.NewSerializer(nil, nil).EncodeWithAllocator(&s, &buf, &runtime.SimpleAllocator{})
	if err != nil {
		return nil, fmt.Errorf("encode status %q: %w", s.Reason, err)
	}
	return buf.Bytes(), nil
}

// errorFrame is a watch's ERROR event, framed for the stream's encoding.
func errorFrame(s metav1.Status, proto bool) ([]byte, error) {
	status, err := encodeStatus(s, proto)
	if err != nil {
		return nil, err
	}
	e := metav1.WatchEvent{Type: string(watch.Error), Object: runtime.RawExtension{Raw: status}}
	if !proto {
		raw, err := json.Marshal(e)
		return append(raw, '\n'), err
	}
	raw, err := e.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode ERROR event: %w", err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...), nil
}
