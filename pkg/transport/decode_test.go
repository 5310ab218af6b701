// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, tc := range map[string]struct{ contentType, body, want string }{
		"no content type": {"", "{}", "content type"},
		"another type":    {"text/html", "<html>", "neither JSON nor protobuf"},
		"broken JSON":     {"application/json", "{", "unexpected end"},
		"not protobuf":    {"application/vnd.kubernetes.protobuf", "{}", "prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(tc.contentType, []byte(tc.body))
			require.ErrorContains(t, err, tc.want)
		})
	}
}
