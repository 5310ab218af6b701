// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// ending is a body that tells its end apart from its last bytes, as HTTP/2 may, and notes that it has.
type ending struct {
	io.Reader
	err   error
	ended bool
}

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	if err != nil {
		e.ended = true
		return n, e.err
	}
	return n, nil
}

// A body is read to its end, even if as much as was promised has come: HTTP/2 resets the stream of one that is closed before.
func TestABodyIsReadToItsEnd(t *testing.T) {
	const text = "some text"
	cut := errors.New("cut")
	for name, tc := range map[string]struct {
		length int64
		err    error
	}{
		"length known":     {int64(len(text)), nil},
		"empty":            {0, nil},
		"length unknown":   {-1, nil},
		"more than is due": {3, nil},
		"cut":              {1000, cut},
	} {
		t.Run(name, func(t *testing.T) {
			from := &ending{Reader: strings.NewReader(text), err: io.EOF}
			if tc.err != nil {
				from.err = tc.err
			}
			got, err := readBody(from, tc.length)
			require.ErrorIs(t, err, tc.err)
			require.Equal(t, text, string(got.raw()))
			require.True(t, from.ended)
			again, err := io.ReadAll(got)
			require.NoError(t, err)
			require.Equal(t, text, string(again))
			require.NoError(t, got.Close())
			require.NoError(t, got.Close(), "closed twice")
			after, err := io.ReadAll(got)
			require.NoError(t, err)
			require.Empty(t, after, "its memory is another's now")
		})
	}
}

// The memory of a body that was closed is the next one's: a reconcile reads the answer to each of its writes.
func TestABodyTakesNoMemoryOfItsOwn(t *testing.T) {
	text := strings.Repeat("x", 5000)
	allocations := testing.AllocsPerRun(1000, func() {
		got, err := readBody(strings.NewReader(text), int64(len(text)))
		require.NoError(t, err)
		require.NoError(t, got.Close())
	})
	// Those of the reader and of the body. The race detector has the pool forget some of the memory. Without the pool there are 4.
	require.LessOrEqual(t, allocations, 3.0)
}

// What was decoded stays, whatever the memory of the body is used for next.
func TestAnAnswerOutlivesItsBody(t *testing.T) {
	set := &apps.ReplicaSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "uid", ResourceVersion: "7"}}
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "b").ErrStatus
	gone.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	for contentType, codec := range map[string]runtime.Encoder{
		runtime.ContentTypeJSON:     scheme.Codecs.LegacyCodec(metav1.SchemeGroupVersion, apps.SchemeGroupVersion),
		runtime.ContentTypeProtobuf: protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
	} {
		for _, object := range []runtime.Object{set, &gone} {
			encoded, err := runtime.Encode(codec, object)
			require.NoError(t, err)
			want, err := decode(contentType, encoded)
			require.NoError(t, err)
			read, err := readBody(strings.NewReader(string(encoded)), -1)
			require.NoError(t, err)
			got, err := decode(contentType, read.raw())
			require.NoError(t, err)
			clear(read.raw())
			require.Equal(t, want, got, contentType)
			require.NotEmpty(t, got.kind)
		}
	}
}
