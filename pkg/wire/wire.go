// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire reads single fields of objects in Kubernetes' protobuf encoding without decoding the rest.
package wire

import "google.golang.org/protobuf/encoding/protowire"

// Numbers of fields of runtime.Unknown, of its TypeMeta, of every object, and of metav1.ObjectMeta, from the generated.proto files of
// apimachinery's packages runtime and meta/v1.
const (
	UnknownTypeMeta protowire.Number = 1
	UnknownRaw      protowire.Number = 2

	TypeMetaAPIVersion protowire.Number = 1
	TypeMetaKind       protowire.Number = 2

	ObjectMetadata protowire.Number = 1

	MetadataName            protowire.Number = 1
	MetadataNamespace       protowire.Number = 3
	MetadataUID             protowire.Number = 5
	MetadataResourceVersion protowire.Number = 6
)

// Prefix begins every object.
var Prefix = []byte("k8s\x00")

// Fields calls f with each field of a message that is a string, bytes or a message, and skips the others. It returns f's first error, or that the
// message is malformed. The value is a part of the message.
func Fields(message []byte, f func(number protowire.Number, value []byte) error) error {
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
