// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// protobufPrefix begins every object in Kubernetes' protobuf encoding.
var protobufPrefix = []byte{'k', '8', 's', 0}

// Fields of Kubernetes' protobuf messages: of runtime.Unknown, of its TypeMeta, of every object, and of metav1.ObjectMeta.
const (
	unknownTypeMeta protowire.Number = 1
	unknownRaw      protowire.Number = 2

	typeMetaAPIVersion protowire.Number = 1
	typeMetaKind       protowire.Number = 2

	objectMetadata protowire.Number = 1

	metadataName            protowire.Number = 1
	metadataNamespace       protowire.Number = 3
	metadataUID             protowire.Number = 5
	metadataResourceVersion protowire.Number = 6
)

// decode reads which object it is, or a Status, in any encoding that the clients ask for. The rest of an object, the managed fields for instance, is
// skipped: every write of a reconcile is read so.
func decode(contentType string, body []byte) (*answer, error) {
	mediaType := contentType
	if mediaType != runtime.ContentTypeProtobuf {
		var err error
		if mediaType, _, err = mime.ParseMediaType(contentType); err != nil {
			return nil, fmt.Errorf("content type %q: %w", contentType, err)
		}
	}
	switch mediaType {
	case runtime.ContentTypeJSON:
		return decodeJSON(body)
	case runtime.ContentTypeProtobuf:
		raw, ok := bytes.CutPrefix(body, protobufPrefix)
		if !ok {
			return nil, fmt.Errorf("no %q prefix", protobufPrefix)
		}
		return decodeProtobuf(raw)
	}
	return nil, fmt.Errorf("content type %q is neither JSON nor protobuf", contentType)
}

func decodeJSON(body []byte) (*answer, error) {
	var got struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   struct {
			Name            string    `json:"name"`
			Namespace       string    `json:"namespace"`
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
		Details *metav1.StatusDetails `json:"details"`
		Message string                `json:"message"`
	}
	err := json.Unmarshal(body, &got)
	return &answer{kind: got.Kind, apiVersion: got.APIVersion, details: got.Details, message: got.Message, ObjectMeta: metav1.ObjectMeta{
		Name: got.Metadata.Name, Namespace: got.Metadata.Namespace, UID: got.Metadata.UID, ResourceVersion: got.Metadata.ResourceVersion,
	}}, err
}

// decodeProtobuf reads a runtime.Unknown.
func decodeProtobuf(unknown []byte) (*answer, error) {
	got := &answer{}
	var raw []byte
	err := fields(unknown, func(number protowire.Number, value []byte) error {
		switch number {
		case unknownTypeMeta:
			return fields(value, func(number protowire.Number, value []byte) error {
				switch number {
				case typeMetaAPIVersion:
					got.apiVersion = string(value)
				case typeMetaKind:
					got.kind = string(value)
				}
				return nil
			})
		case unknownRaw:
			raw = value
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if got.kind == "Status" && got.apiVersion == "v1" {
		var status metav1.Status
		err := status.Unmarshal(raw)
		got.details, got.message, got.ResourceVersion = status.Details, status.Message, status.ResourceVersion
		return got, err
	}
	return got, fields(raw, func(number protowire.Number, value []byte) error {
		if number != objectMetadata {
			return nil
		}
		return fields(value, func(number protowire.Number, value []byte) error {
			switch number {
			case metadataName:
				got.Name = string(value)
			case metadataNamespace:
				got.Namespace = string(value)
			case metadataUID:
				got.UID = types.UID(value)
			case metadataResourceVersion:
				got.ResourceVersion = string(value)
			}
			return nil
		})
	})
}

// fields calls f with each field of a protobuf message that is a string, bytes or a message.
func fields(message []byte, f func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return protowire.ParseError(n)
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return protowire.ParseError(n)
		}
		message = message[n:]
		if err := f(number, value); err != nil {
			return err
		}
	}
	return nil
}
