// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/pkg/wire"
)

// versionMap says what becomes of a resource version; e describes the object that it belongs to.
type versionMap func(e Event, version string) string

const (
	kindStatus        = "Status"
	kindTable         = "Table"
	kindDeleteOptions = "DeleteOptions"
	kindEviction      = "Eviction"
	listSuffix        = "List"
)

// More field numbers, see event.go.
const (
	fieldListMetaRV            protowire.Number = 2
	fieldListItems             protowire.Number = 2
	fieldEvictionDeleteOptions protowire.Number = 2
	fieldDeletePreconditions   protowire.Number = 2
	fieldPreconditionsRV       protowire.Number = 2
)

// rewriteJSON returns an object or list with its resource versions mapped. What is not a JSON object, such as
// a JSON patch, comes back as it is.
func rewriteJSON(raw []byte, m versionMap) ([]byte, error) {
	var fields map[string]json.RawMessage
	if first := bytes.TrimLeft(raw, " \t\r\n"); len(first) == 0 || first[0] != '{' {
		return raw, nil
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("JSON object: %w", err)
	}
	var kind string
	if err := optionalJSON(fields["kind"], &kind); err != nil {
		return nil, fmt.Errorf("JSON object: kind: %w", err)
	}
	if kind == kindStatus || kind == kindTable {
		return raw, nil
	}
	changes := map[string]func([]byte) ([]byte, error){
		"metadata": func(v []byte) ([]byte, error) { return rewriteJSONMeta(v, m, "") },
	}
	preconditions := func(v []byte) ([]byte, error) {
		return changeJSON(v, map[string]func([]byte) ([]byte, error){
			"preconditions": func(v []byte) ([]byte, error) { return rewriteJSONMeta(v, m, "") },
		})
	}
	switch {
	case kind == kindDeleteOptions:
		return preconditions(raw)
	case kind == kindEviction:
		changes["deleteOptions"] = preconditions
	case strings.HasSuffix(kind, listSuffix):
		changes["items"] = func(v []byte) ([]byte, error) {
			var items []json.RawMessage
			if err := json.Unmarshal(v, &items); err != nil {
				return nil, err
			}
			for i, item := range items {
				var err error
				if items[i], err = changeJSON(item, map[string]func([]byte) ([]byte, error){"metadata": changes["metadata"]}); err != nil {
					return nil, err
				}
			}
			return json.Marshal(items)
		}
	}
	return changeJSON(raw, changes)
}

// rewriteJSONMeta maps the version of an ObjectMeta, a ListMeta or Preconditions, which have the same name for it.
func rewriteJSONMeta(raw []byte, m versionMap, typ watch.EventType) ([]byte, error) {
	e, err := decodeJSONMeta(raw)
	if err != nil {
		return nil, err
	}
	e.Type = typ
	return changeJSON(raw, map[string]func([]byte) ([]byte, error){
		"resourceVersion": func([]byte) ([]byte, error) {
			if e.ResourceVersion == "" {
				return json.Marshal("")
			}
			return json.Marshal(m(e, e.ResourceVersion))
		},
	})
}

func rewriteJSONEvent(raw []byte, typ watch.EventType, m versionMap) ([]byte, error) {
	out, err := changeJSON(raw, map[string]func([]byte) ([]byte, error){
		"object": func(v []byte) ([]byte, error) {
			return changeJSON(v, map[string]func([]byte) ([]byte, error){
				"metadata": func(v []byte) ([]byte, error) { return rewriteJSONMeta(v, m, typ) },
			})
		},
	})
	return append(out, '\n'), err
}

// changeJSON replaces those fields of an object that are there and not null, and leaves the bytes of the others.
func changeJSON(raw []byte, changes map[string]func([]byte) ([]byte, error)) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	for name, change := range changes {
		v, ok := fields[name]
		if !ok || string(v) == "null" {
			continue
		}
		out, err := change(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fields[name] = out
	}
	return json.Marshal(fields)
}

func optionalJSON(raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// rewriteProtobuf does to an object in its envelope what rewriteJSON does to one in JSON.
func rewriteProtobuf(raw []byte, m versionMap) ([]byte, error) {
	unknown, ok := bytes.CutPrefix(raw, wire.Prefix)
	if !ok {
		return nil, fmt.Errorf("protobuf object of %d bytes has no magic prefix", len(raw))
	}
	typeMeta, err := bytesField(unknown, wire.UnknownTypeMeta)
	if err != nil {
		return nil, fmt.Errorf("protobuf object: %w", err)
	}
	kindField, err := bytesField(typeMeta, wire.TypeMetaKind)
	if err != nil {
		return nil, fmt.Errorf("protobuf object: kind: %w", err)
	}
	kind := string(kindField)
	if kind == kindStatus {
		return raw, nil
	}
	objectMeta := func(v []byte) ([]byte, error) { return rewriteProtobufMeta(v, m, "") }
	plain := func(field protowire.Number) func([]byte) ([]byte, error) {
		return func(v []byte) ([]byte, error) {
			return changeField(v, field, func(rv []byte) ([]byte, error) { return mapVersion(rv, Event{}, m), nil })
		}
	}
	preconditions := func(v []byte) ([]byte, error) {
		return changeField(v, fieldDeletePreconditions, plain(fieldPreconditionsRV))
	}
	out, err := changeField(unknown, wire.UnknownRaw, func(obj []byte) ([]byte, error) {
		switch {
		case kind == kindDeleteOptions:
			return preconditions(obj)
		case strings.HasSuffix(kind, listSuffix):
			obj, err := changeField(obj, wire.ObjectMetadata, plain(fieldListMetaRV))
			if err != nil {
				return nil, err
			}
			return changeField(obj, fieldListItems, func(item []byte) ([]byte, error) {
				return changeField(item, wire.ObjectMetadata, objectMeta)
			})
		}
		obj, err := changeField(obj, wire.ObjectMetadata, objectMeta)
		if err == nil && kind == kindEviction {
			return changeField(obj, fieldEvictionDeleteOptions, preconditions)
		}
		return obj, err
	})
	if err != nil {
		return nil, fmt.Errorf("protobuf %s: %w", kind, err)
	}
	return append(bytes.Clone(wire.Prefix), out...), nil
}

func rewriteProtobufMeta(meta []byte, m versionMap, typ watch.EventType) ([]byte, error) {
	e := Event{Type: typ}
	if err := decodeProtobufMeta(meta, &e); err != nil {
		return nil, err
	}
	return changeField(meta, wire.MetadataResourceVersion, func(rv []byte) ([]byte, error) { return mapVersion(rv, e, m), nil })
}

// rewriteProtobufEvent takes and returns a frame with its length prefix.
func rewriteProtobufEvent(frame []byte, typ watch.EventType, m versionMap) ([]byte, error) {
	const prefix = 4
	event, err := changeField(frame[prefix:], fieldWatchEventObject, func(extension []byte) ([]byte, error) {
		return changeField(extension, fieldRawExtensionRaw, func(embedded []byte) ([]byte, error) {
			unknown, ok := bytes.CutPrefix(embedded, wire.Prefix)
			if !ok {
				return nil, fmt.Errorf("object of %d bytes has no magic prefix", len(embedded))
			}
			out, err := changeField(unknown, wire.UnknownRaw, func(obj []byte) ([]byte, error) {
				return changeField(obj, wire.ObjectMetadata, func(meta []byte) ([]byte, error) {
					return rewriteProtobufMeta(meta, m, typ)
				})
			})
			return append(bytes.Clone(wire.Prefix), out...), err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("protobuf %s event: %w", typ, err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...), nil
}

func mapVersion(rv []byte, e Event, m versionMap) []byte {
	if len(rv) == 0 {
		return rv
	}
	e.ResourceVersion = string(rv)
	return []byte(m(e, e.ResourceVersion))
}

// changeField copies a message and replaces every occurrence of one length-delimited field.
func changeField(msg []byte, want protowire.Number, change func([]byte) ([]byte, error)) ([]byte, error) {
	out := make([]byte, 0, len(msg)+32)
	for len(msg) > 0 {
		num, typ, tagLen := protowire.ConsumeTag(msg)
		if tagLen < 0 {
			return nil, protowire.ParseError(tagLen)
		}
		valueLen := protowire.ConsumeFieldValue(num, typ, msg[tagLen:])
		if valueLen < 0 {
			return nil, protowire.ParseError(valueLen)
		}
		field := msg[:tagLen+valueLen]
		msg = msg[len(field):]
		if num != want || typ != protowire.BytesType {
			out = append(out, field...)
			continue
		}
		value, n := protowire.ConsumeBytes(field[tagLen:])
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		changed, err := change(value)
		if err != nil {
			return nil, err
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, num, typ), changed)
	}
	return out, nil
}
