// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"mime"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

var proto = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// encoding is what a client asked for: protobuf or JSON, of whole objects or of their metadata alone.
type encoding struct {
	protobuf, partial bool
}

func negotiate(accept string) encoding {
	for part := range strings.SplitSeq(accept, ",") {
		mediaType, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		e := encoding{protobuf: mediaType == runtime.ContentTypeProtobuf, partial: strings.HasPrefix(params["as"], "PartialObjectMetadata")}
		if e.protobuf || mediaType == runtime.ContentTypeJSON {
			return e
		}
	}
	return encoding{}
}

func (e encoding) contentType() string {
	if e.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

func (e encoding) encode(o runtime.Object) []byte {
	if !e.protobuf {
		data, err := json.Marshal(o)
		if err != nil {
			panic(err)
		}
		return data
	}
	var out bytes.Buffer
	if err := proto.Encode(o, &out); err != nil {
		panic(err)
	}
	return out.Bytes()
}

var metaGV = schema.GroupVersion{Group: metav1.GroupName, Version: "v1"}

func partial(o Object) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{}
	p.SetGroupVersionKind(metaGV.WithKind("PartialObjectMetadata"))
	meta := field(o, "ObjectMeta").Interface().(metav1.ObjectMeta)
	meta.DeepCopyInto(&p.ObjectMeta)
	return p
}

func (e encoding) object(o Object) []byte {
	if e.partial {
		return e.encode(partial(o))
	}
	return e.encode(o)
}

func (e encoding) list(r *Resource, objects []Object, meta metav1.ListMeta) []byte {
	if e.partial || r == Widgets {
		list := &metav1.PartialObjectMetadataList{ListMeta: meta, Items: make([]metav1.PartialObjectMetadata, 0, len(objects))}
		list.SetGroupVersionKind(metaGV.WithKind("PartialObjectMetadataList"))
		for _, o := range objects {
			list.Items = append(list.Items, *partial(o))
		}
		return e.encode(list)
	}
	list := reflect.New(r.list)
	items := reflect.MakeSlice(list.Elem().FieldByName("Items").Type(), 0, len(objects))
	for _, o := range objects {
		items = reflect.Append(items, reflect.ValueOf(o).Elem())
	}
	list.Elem().FieldByName("Items").Set(items)
	list.Elem().FieldByName("ListMeta").Set(reflect.ValueOf(meta))
	out := list.Interface().(runtime.Object)
	out.GetObjectKind().SetGroupVersionKind(r.GroupVersion().WithKind(r.Kind + "List"))
	return e.encode(out)
}

// frame is one event on the wire.
func (e encoding) frame(t watch.EventType, raw []byte) []byte {
	event := metav1.WatchEvent{Type: string(t), Object: runtime.RawExtension{Raw: raw}}
	if !e.protobuf {
		data, err := json.Marshal(event)
		if err != nil {
			panic(err)
		}
		return append(data, '\n')
	}
	data, err := event.Marshal()
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// decode reads the body of a write.
func decode(body []byte, into *schema.GroupVersionKind) (runtime.Object, error) {
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, into, nil)
	if err != nil {
		return nil, fmt.Errorf("decoding a body: %w", err)
	}
	return o, nil
}
