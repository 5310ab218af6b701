// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A page of a list that ends in the middle proves nothing: not that the cache is fresh, though what came equals it, nor that it is
// stale, though what did not come is in it. The page is the first, of two, or the last; it is cut by a connection that breaks, or so
// that its end looks like one, plain or compressed. At every byte.
func TestAPageCutInTheMiddleProvesNothing(t *testing.T) {
	for _, tc := range []struct {
		name              string
		json, gzip, whole bool
		objects, page     int // of the first page, or of the second
	}{
		{name: "protobuf, broken", objects: 10},
		{name: "protobuf, looks whole", whole: true, objects: 10},
		{name: "protobuf, compressed, looks whole", gzip: true, whole: true, objects: 10},
		{name: "JSON, broken", json: true, objects: 10},
		{name: "JSON, looks whole", json: true, whole: true, objects: 10},
		{name: "second page, broken", objects: pageSize + 10, page: 1},
		{name: "second page, looks whole", whole: true, objects: pageSize + 10, page: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inWorld(t, Options{SmallCollection: 2 * pageSize}, func(w *world) {
				w.api.json = tc.json
				for i := range tc.objects {
					w.api.write("ns/o"+strconv.Itoa(1000+i), "uid", false)
				}
				w.view.sync(w.api.bump(0))
				w.api.bump(50) // so that the cache, which is fresh, passes no fence
				var size, after int
				w.answerBy(func(rw http.ResponseWriter, r *http.Request) bool {
					if r.Header.Get(uncut) != "" || !isList(r) || (r.URL.Query().Get("continue") != "") != (tc.page == 1) {
						return false
					}
					body := answerOf(w.api, r)
					if tc.gzip {
						rw.Header().Set("Content-Encoding", "gzip")
						whole := httptest.NewRecorder()
						z := gzip.NewWriter(whole)
						_, _ = z.Write(body.Body.Bytes())
						_ = z.Close()
						body.Body = whole.Body
					}
					size = body.Body.Len()
					rw.Header().Set("Content-Type", body.Header().Get("Content-Type"))
					if !tc.whole {
						rw.Header().Set("Content-Length", strconv.Itoa(size))
					}
					_, _ = rw.Write(body.Body.Bytes()[:min(after, size)])
					if !tc.whole && after < size {
						rw.(http.Flusher).Flush()
						panic(http.ErrAbortHandler)
					}
					return true
				})
				// Protobuf's envelope ends with two fields that are empty, and JSON with a newline: what lacks these lacks nothing.
				empty := 0
				if tc.whole && !tc.gzip {
					empty = 4
					if tc.json {
						empty = 1
					}
				}
				cuts := 0
				for ; after == 0 || after < size-empty; after++ {
					cuts++
					proof, err := w.p.ProveByList(w.Context(), leases, time.Now(), 0)
					require.NoError(w, err)
					require.Equal(w, Unknown, proof.Outcome, "cut after %d of %d bytes: %s", after, size, proof)
					time.Sleep(time.Minute) // for which it may not ask again
				}
				require.Greater(w, cuts, 100)
				proof, err := w.p.ProveByList(w.Context(), leases, time.Now(), 0)
				require.NoError(w, err)
				require.Equal(w, Proven, proof.Outcome, "the whole of it proves that the cache is fresh: %s", proof)
			})
		})
	}
}

// uncut is a header of requests whose answers are not cut.
const uncut = "Uncut"

// answerOf is what the server would say.
func answerOf(api *fakeAPI, r *http.Request) *httptest.ResponseRecorder {
	out := httptest.NewRecorder()
	r = r.Clone(r.Context())
	r.Header.Set(uncut, "yes")
	api.ServeHTTP(out, r)
	return out
}
