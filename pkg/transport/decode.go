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

	"github.com/fresh-kcm/fresh-kcm/pkg/wire"
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
		raw, ok := bytes.CutPrefix(body, wire.Prefix)
		if !ok {
			return nil, fmt.Errorf("no %q prefix", wire.Prefix)
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
	err := wire.Fields(unknown, func(number protowire.Number, value []byte) error {
		switch number {
		case wire.UnknownTypeMeta:
			return wire.Fields(value, got.typeMeta)
		case wire.UnknownRaw:
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
	return got, wire.Fields(raw, func(number protowire.Number, value []byte) error {
		if number != wire.ObjectMetadata {
			return nil
		}
		return wire.Fields(value, got.metadata)
	})
}

// typeMeta takes a field of a TypeMeta.
func (a *answer) typeMeta(number protowire.Number, value []byte) error {
	switch number {
	case wire.TypeMetaAPIVersion:
		a.apiVersion = string(value)
	case wire.TypeMetaKind:
		a.kind = string(value)
	}
	return nil
}

// metadata takes a field of an ObjectMeta.
func (a *answer) metadata(number protowire.Number, value []byte) error {
	switch number {
	case wire.MetadataName:
		a.Name = string(value)
	case wire.MetadataNamespace:
		a.Namespace = string(value)
	case wire.MetadataUID:
		a.UID = types.UID(value)
	case wire.MetadataResourceVersion:
		a.ResourceVersion = string(value)
	}
	return nil
}
