// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// blanks is JSON without end.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// What an answer comes to is limited as it is after decompression, for fences, lists and watches.
func TestAnswerIsLimited(t *testing.T) {
	for name, tc := range map[string]struct {
		match func(*http.Request) bool
		small int
		sent  int64
		limit string
	}{
		"fence": {isFence, 0, maxFence + 1<<20, "8388608 bytes"},
		"list":  {isList, 0, maxPage + 1<<20, "67108864 bytes"},
		"watch": {isWatch, -1, 32 << 20, ""}, // The decoder has a lower limit of its own for one event.
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{SmallCollection: tc.small}, func(w *world) {
				w.api.bump(50)
				w.answerBy(func(rw http.ResponseWriter, r *http.Request) bool {
					if !tc.match(r) {
						return false
					}
					rw.Header().Set("Content-Type", "application/json")
					rw.Header().Set("Content-Encoding", "gzip")
					z := gzip.NewWriter(rw)
					io.CopyN(z, blanks{}, tc.sent)
					z.Close()
					return true
				})
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				proof := w.prove(time.Now())
				runtime.ReadMemStats(&after)
				require.Equal(w, Unknown, proof.Outcome)
				require.ErrorContains(w, proof.Err, tc.limit)
				require.Less(w, after.TotalAlloc-before.TotalAlloc, uint64(512<<20), "io.ReadAll takes a few times as much in all")
			})
		})
	}
}

func TestVersionIsLimited(t *testing.T) {
	require.True(t, comparableRV(strings.Repeat("9", maxDigits)))
	require.False(t, comparableRV(strings.Repeat("9", maxDigits+1)))
	for name, match := range map[string]func(*http.Request) bool{"fence": isFence, "event": isWatch} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{SmallCollection: -1}, func(w *world) {
				w.api.bump(50)
				w.answerBy(func(_ http.ResponseWriter, r *http.Request) bool {
					w.api.mu.Lock()
					defer w.api.mu.Unlock()
					w.api.format = nil
					if match(r) {
						w.api.format = func(rv int) string { return strings.Repeat("1", 1<<20) }
					}
					return false
				})
				proof := w.prove(time.Now())
				w.requireUnknown(proof, ReasonIncomparable)
				require.Less(w, len(proof.Err.Error()), 1000)
			})
		})
	}
}

// A list that goes on and brings nothing new ends, and so does one of short pages.
func TestListEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		more  func(page int) int
		pages int
		text  string
	}{
		"the same page without end": {func(int) int { return 1 }, 2, "brought nothing new"},
		"empty pages":               {func(int) int { return 0 }, 1, "brought nothing new"},
		"one object a page":         {func(page int) int { return page }, maxPages(500), "more than 6 pages"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				w.api.bump(50)
				page := 0
				w.answerBy(func(rw http.ResponseWriter, r *http.Request) bool {
					if !isList(r) {
						return false
					}
					page++
					list := &metav1.PartialObjectMetadataList{}
					list.APIVersion, list.Kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
					list.ResourceVersion, list.Continue = "160", fmt.Sprint("token", page)
					if n := tc.more(page); n > 0 {
						list.Items = append(list.Items, *w.api.object(change{rv: 101, key: fmt.Sprint("ns/", n), uid: "u"}))
					}
					rw.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
					rw.Write(protoBytes(list))
					return true
				})
				proof := w.prove(time.Now())
				require.Equal(w, Unknown, proof.Outcome)
				require.ErrorContains(w, proof.Err, tc.text)
				require.Equal(w, tc.pages, w.api.count(isList))
			})
		})
	}
}

// A list whose pages come slowly ends, too.
func TestListTakesATimeAtMost(t *testing.T) {
	inWorld(t, Options{SmallCollection: 10_000}, func(w *world) {
		w.api.bump(50)
		for i := range 5000 {
			w.api.write(fmt.Sprintf("ns/%05d", i), "uid", false)
		}
		w.view.sync(150)
		w.answerBy(func(_ http.ResponseWriter, r *http.Request) bool {
			if isList(r) {
				select {
				case <-time.After(9 * time.Second):
				case <-r.Context().Done():
				}
			}
			return false
		})
		begin := time.Now()
		w.requireUnknown(w.prove(begin), ReasonTimeout)
		require.LessOrEqual(w, time.Since(begin), time.Minute+time.Second)
	})
}

// A server may say anything; errors show it in one line of printable characters.
func TestTextOfServersIsReadable(t *testing.T) {
	hostile := "\x1b[2J\x1b]0;owned\x07 \r\nfake: line\u202e\u2028 <b>\"quoted\"</b> \xff " + strings.Repeat("x", 1<<20)
	for name, match := range map[string]func(*http.Request) bool{"fence": isFence, "list": isList, "watch": isWatch} {
		t.Run(name, func(t *testing.T) {
			small := 0
			if name == "watch" {
				small = -1
			}
			inWorld(t, Options{SmallCollection: small}, func(w *world) {
				w.api.bump(50)
				w.answerBy(func(rw http.ResponseWriter, r *http.Request) bool {
					if match(r) {
						http.Error(rw, hostile, http.StatusInternalServerError)
					}
					return match(r)
				})
				proof := w.prove(time.Now())
				require.Equal(w, Unknown, proof.Outcome)
				requireReadable(w.T, proof.Err.Error())
				requireReadable(w.T, proof.String())
				_, err := w.p.Fence(w.Context(), custom(1))
				if name == "fence" {
					requireReadable(w.T, err.Error())
				}
			})
		})
	}
	requireReadable(t, readable{errors.New(hostile)}.Error())
	require.Equal(t, `plain "text" äß`, readable{errors.New(`plain "text" äß`)}.Error())
}

func requireReadable(t *testing.T, text string) {
	t.Helper()
	require.Less(t, len(text), 2*maxText)
	require.Equal(t, text, printable(text), "it has what cannot be printed")
}

// A server whose answers take longer than a request usually may is given more time, step by step, and no longer than needed.
func TestASlowServerIsGivenTime(t *testing.T) {
	inWorld(t, Options{RequestTimeout: 10 * time.Second}, func(w *world) {
		var takes atomic.Int64
		w.api.arrived = func(r *http.Request) {
			if takes := time.Duration(takes.Load()); takes > 0 {
				select {
				case <-time.After(takes):
				case <-r.Context().Done():
				}
			}
		}
		prove := func(delay time.Duration) (Proof, time.Duration) {
			takes.Store(int64(delay))
			time.Sleep(time.Minute)
			began := time.Now()
			return w.prove(began), time.Since(began)
		}
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
			proof, took := prove(30 * time.Second)
			w.requireUnknown(proof, ReasonTimeout)
			require.Equal(w, want, took)
		}
		for range 2 {
			proof, took := prove(30 * time.Second)
			w.requireProven(proof, methodFence)
			require.Equal(w, 30*time.Second, took)
		}
		_, took := prove(time.Hour)
		require.Equal(w, 40*time.Second, took, "the most")
		_, took = prove(time.Hour)
		require.Equal(w, 40*time.Second, took)
		w.requireProven(first(prove(time.Second)), methodFence)
		_, took = prove(time.Hour)
		require.Equal(w, 10*time.Second, took, "it was quick again")
	})
}

func first[T, U any](t T, _ U) T { return t }

// Resources behind a webhook or another server may hang without end, and there may be a thousand of them.
func TestOnlyBuiltInResourcesAreGivenTime(t *testing.T) {
	inWorld(t, Options{RequestTimeout: 10 * time.Second}, func(w *world) {
		widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
		track(w.p, widgets, w.view)
		w.api.arrived = func(r *http.Request) { <-r.Context().Done() }
		for range 3 {
			time.Sleep(time.Hour)
			began := time.Now()
			_, err := w.p.Prove(w.Context(), widgets, began)
			require.NoError(w, err)
			require.Equal(w, 10*time.Second, time.Since(began))
		}
	})
}

// Who waits for a slow server has a proof as soon as the cache has passed a fence that somebody else took meanwhile.
func TestAFedFenceEndsAWait(t *testing.T) {
	for name, api := range map[string]func(*Prover, context.Context, schema.GroupVersionResource, time.Time) (Proof, error){
		"fence": (*Prover).Prove, "list": (*Prover).ProveAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, func(w *world) {
				release := w.gate(func(*http.Request) bool { return true })
				defer release()
				began := time.Now()
				before := w.send()
				before.At = before.At.Add(-time.Minute)
				time.AfterFunc(time.Second, func() { w.wrote(w.api.write("ns/a", "uid", false), before) })
				time.AfterFunc(3*time.Second, func() {
					sent := w.send()
					w.wrote(w.api.write("ns/a", "uid", false), sent)
				})
				time.AfterFunc(3*time.Second+50*time.Millisecond, func() { w.view.show(112) })
				proof, err := api(w.p, w.Context(), leases, began)
				require.NoError(w, err)
				require.True(w, proof.Fresh(), proof.String())
				require.Equal(w, began.Add(3*time.Second), proof.At)
				require.Equal(w, 3*time.Second+50*time.Millisecond, time.Since(began))
			})
		})
	}
}

// Fences that others take in numbers are not kept in numbers, and do not push out the prover's own.
func TestFedFencesAreThinned(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		begin := time.Now()
		for i := range 1000 {
			w.wrote(111+i, w.send())
			time.Sleep(time.Millisecond)
		}
		require.Len(w, w.p.resource(leases).fences, int(time.Since(begin)/fenceEvery))
	})
}
