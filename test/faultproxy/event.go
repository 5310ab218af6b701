// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// Event is what the proxy reads of a watch event.
type Event struct {
	// Type is empty if the frame's encoding is not known to the proxy.
	Type            watch.EventType
	Namespace, Name string
	UID             types.UID
	ResourceVersion string

	// initialEnd marks the bookmark that ends the initial events of a WatchList stream.
	initialEnd bool
}

func decodeJSONEvent(raw []byte) (Event, error) {
	var e struct {
		Type   watch.EventType `json:"type"`
		Object struct {
			Metadata jsonMeta `json:"metadata"`
		} `json:"object"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return Event{}, fmt.Errorf("JSON watch event: %w", err)
	}
	out := e.Object.Metadata.event()
	out.Type = e.Type
	return out, nil
}

// jsonMeta is what the proxy reads of an object's metadata.
type jsonMeta struct {
	Namespace       string            `json:"namespace"`
	Name            string            `json:"name"`
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations"`
}

func (m jsonMeta) event() Event {
	return Event{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		initialEnd: m.Annotations[metav1.InitialEventsAnnotationKey] == "true",
	}
}

func decodeJSONMeta(raw []byte) (Event, error) {
	var m jsonMeta
	if err := json.Unmarshal(raw, &m); err != nil {
		return Event{}, err
	}
	return m.event(), nil
}

// Field numbers of the protobuf messages on the way from a WatchEvent to its object's metadata, from the
// generated.proto files of apimachinery's meta/v1 and runtime packages.
const (
	fieldWatchEventType   protowire.Number = 1
	fieldWatchEventObject protowire.Number = 2
	fieldRawExtensionRaw  protowire.Number = 1
	fieldUnknownRaw       protowire.Number = 2
	fieldObjectMeta       protowire.Number = 1
	fieldMetaName         protowire.Number = 1
	fieldMetaNamespace    protowire.Number = 3
	fieldMetaUID          protowire.Number = 5
	fieldMetaRV           protowire.Number = 6
	fieldMetaAnnotations  protowire.Number = 12
	fieldMapKey           protowire.Number = 1
	fieldMapValue         protowire.Number = 2
)

// protobufMagic begins every object in Kubernetes' protobuf encoding.
var protobufMagic = []byte("k8s\x00")

// decodeProtobufEvent walks to the metadata without decoding the object, because it runs for every frame.
func decodeProtobufEvent(raw []byte) (Event, error) {
	var e Event
	var object []byte
	err := eachBytesField(raw, func(n protowire.Number, v []byte) {
		switch n {
		case fieldWatchEventType:
			e.Type = watch.EventType(v)
		case fieldWatchEventObject:
			object = v
		}
	})
	if err != nil {
		return Event{}, fmt.Errorf("protobuf watch event: %w", err)
	}
	embedded, err := bytesField(object, fieldRawExtensionRaw)
	if err != nil {
		return Event{}, fmt.Errorf("protobuf %s event: raw extension: %w", e.Type, err)
	}
	if e.Type == watch.Error {
		return e, nil // a Status: its first field is ListMeta
	}
	unknown, ok := bytes.CutPrefix(embedded, protobufMagic)
	if !ok {
		return Event{}, fmt.Errorf("protobuf %s event: object of %d bytes has no magic prefix", e.Type, len(embedded))
	}
	obj, err := bytesField(unknown, fieldUnknownRaw)
	if err != nil {
		return Event{}, fmt.Errorf("protobuf %s event: object: %w", e.Type, err)
	}
	meta, err := bytesField(obj, fieldObjectMeta)
	if err != nil {
		return Event{}, fmt.Errorf("protobuf %s event: metadata: %w", e.Type, err)
	}
	if err := decodeProtobufMeta(meta, &e); err != nil {
		return Event{}, fmt.Errorf("protobuf %s event: metadata: %w", e.Type, err)
	}
	return e, nil
}

// decodeProtobufMeta fills in what an ObjectMeta says of the event.
func decodeProtobufMeta(meta []byte, e *Event) error {
	return eachBytesField(meta, func(n protowire.Number, v []byte) {
		switch n {
		case fieldMetaName:
			e.Name = string(v)
		case fieldMetaNamespace:
			e.Namespace = string(v)
		case fieldMetaUID:
			e.UID = types.UID(v)
		case fieldMetaRV:
			e.ResourceVersion = string(v)
		case fieldMetaAnnotations:
			if e.Type == watch.Bookmark {
				k, _ := bytesField(v, fieldMapKey)
				val, _ := bytesField(v, fieldMapValue)
				e.initialEnd = e.initialEnd || string(k) == metav1.InitialEventsAnnotationKey && string(val) == "true"
			}
		}
	})
}

// eachBytesField calls visit with every length-delimited field of a message and skips the others.
func eachBytesField(msg []byte, visit func(protowire.Number, []byte)) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		msg = msg[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, msg); n < 0 {
				return protowire.ParseError(n)
			}
			msg = msg[n:]
			continue
		}
		v, n := protowire.ConsumeBytes(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		visit(num, v)
		msg = msg[n:]
	}
	return nil
}

// bytesField returns the last value of one length-delimited field, nil if there is none.
func bytesField(msg []byte, want protowire.Number) ([]byte, error) {
	var out []byte
	err := eachBytesField(msg, func(n protowire.Number, v []byte) {
		if n == want {
			out = v
		}
	})
	return out, err
}
