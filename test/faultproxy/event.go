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

	"github.com/fresh-kcm/fresh-kcm/pkg/wire"
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

// More field numbers of the protobuf messages on the way from a WatchEvent to its object's metadata, see package wire.
const (
	fieldWatchEventType   protowire.Number = 1
	fieldWatchEventObject protowire.Number = 2
	fieldRawExtensionRaw  protowire.Number = 1
	fieldMetaAnnotations  protowire.Number = 12
	fieldMapKey           protowire.Number = 1
	fieldMapValue         protowire.Number = 2
)

// decodeProtobufEvent walks to the metadata without decoding the object, because it runs for every frame.
func decodeProtobufEvent(raw []byte) (Event, error) {
	var e Event
	var object []byte
	err := wire.Fields(raw, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldWatchEventType:
			e.Type = watch.EventType(v)
		case fieldWatchEventObject:
			object = v
		}
		return nil
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
	unknown, ok := bytes.CutPrefix(embedded, wire.Prefix)
	if !ok {
		return Event{}, fmt.Errorf("protobuf %s event: object of %d bytes has no magic prefix", e.Type, len(embedded))
	}
	obj, err := bytesField(unknown, wire.UnknownRaw)
	if err != nil {
		return Event{}, fmt.Errorf("protobuf %s event: object: %w", e.Type, err)
	}
	meta, err := bytesField(obj, wire.ObjectMetadata)
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
	return wire.Fields(meta, func(n protowire.Number, v []byte) error {
		switch n {
		case wire.MetadataName:
			e.Name = string(v)
		case wire.MetadataNamespace:
			e.Namespace = string(v)
		case wire.MetadataUID:
			e.UID = types.UID(v)
		case wire.MetadataResourceVersion:
			e.ResourceVersion = string(v)
		case fieldMetaAnnotations:
			if e.Type == watch.Bookmark {
				k, _ := bytesField(v, fieldMapKey)
				val, _ := bytesField(v, fieldMapValue)
				e.initialEnd = e.initialEnd || string(k) == metav1.InitialEventsAnnotationKey && string(val) == "true"
			}
		}
		return nil
	})
}

// bytesField returns the last value of one length-delimited field, nil if there is none.
func bytesField(msg []byte, want protowire.Number) ([]byte, error) {
	var out []byte
	err := wire.Fields(msg, func(n protowire.Number, v []byte) error {
		if n == want {
			out = v
		}
		return nil
	})
	return out, err
}
