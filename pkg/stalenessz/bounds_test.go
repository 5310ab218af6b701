// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessz

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// crowd is a term in which many wait.
type crowd struct {
	term

	n, caches int
	asked     atomic.Int32
	began     time.Time
}

func (c *crowd) Caches() []stalenessmonitor.Cache {
	var out []stalenessmonitor.Cache
	for i := range c.caches {
		out = append(out, stalenessmonitor.Cache{Resource: schema.GroupVersionResource{Group: "example.com", Resource: fmt.Sprint("things", i)}, State: stalenessmonitor.Quiet, Since: c.began})
	}
	return out
}

func (c *crowd) Recorded() int { return c.n }

func (c *crowd) Waits(out *Longest) {
	c.asked.Add(1)
	order := rand.Perm(c.n)
	for _, i := range order {
		since := c.began.Add(-time.Duration(i) * time.Millisecond)
		if out.Of("replicaset").Wants(since) {
			out.Add(Wait{Controller: "replicaset", Owner: fmt.Sprint("default/web-", i), Resource: schema.GroupResource{Resource: "pods"}, For: "resource version 12", Why: "Write", Since: since})
		}
	}
}

func TestPageIsBounded(t *testing.T) {
	const n = 150_000
	for form, limit := range map[string]int{"json": 700_000, "html": 500_000, "text": 300_000} {
		t.Run(form, func(t *testing.T) {
			c := &crowd{n: n, caches: 2 * MaxRows, began: time.Now()}
			p := &Page{Monitoring: true}
			p.Add(c)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			body := get(t, p, Path+"?format="+form, "").Body.String()
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes, %d allocated", len(body), allocated)
			require.Less(t, len(body), limit)
			require.Less(t, allocated, uint64(32<<20))
			if form == "json" {
				var got Stalenessz
				require.NoError(t, json.Unmarshal([]byte(body), &got))
				require.Equal(t, [4]int{MaxRows, n, MaxRows, 2 * MaxRows}, [4]int{len(got.Waits), got.WaitsTotal, len(got.Caches), got.CachesTotal})
				for i, w := range got.Waits {
					require.Equal(t, fmt.Sprint("default/web-", n-1-i), w.Owner, "the longest are shown, these first")
				}
			} else {
				require.Contains(t, body, "150000 waiting (1000 are shown)")
				require.Contains(t, body, "2000 caches: 2000 quiet (1000 are shown)")
			}
		})
	}
}

// A scrape makes no row of what waits.
func TestLongestWaitsAreCheap(t *testing.T) {
	c := &crowd{n: 150_000, began: time.Now()}
	p := &Page{}
	p.Add(c)
	p.Add(&term{waits: []Wait{{Controller: "job", Owner: "default/old", Since: c.began.Add(-time.Hour)}, {Controller: "job", Owner: "default/new", Since: c.began}}})
	now, leading := p.WaitsNow()
	require.True(t, leading)
	require.InDelta(t, time.Hour, now.Longest["job"].Object, float64(10*time.Second))
	require.Less(t, now.Longest["replicaset"].Object, time.Hour, "each controller has its own")
	require.Zero(t, now.Longest["job"].Action)
	allocs := testing.AllocsPerRun(1, func() { p.WaitsNow() })
	for range 4 { // Those of other goroutines are counted, too.
		allocs = min(allocs, testing.AllocsPerRun(1, func() { p.WaitsNow() }))
	}
	require.Less(t, allocs, 10.0)
}

// One answer is made a second, for all readers and in each form once.
func TestAnswersAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{n: 10, began: time.Now()}
		p := &Page{}
		remove := p.Add(c)
		for range 100 {
			for _, form := range []string{"json", "html", "text"} {
				require.Equal(t, http.StatusOK, get(t, p, Path+"?format="+form, "").Code)
			}
		}
		require.EqualValues(t, 1, c.asked.Load())
		time.Sleep(sharedFor)
		get(t, p, Path, "")
		require.EqualValues(t, 2, c.asked.Load())
		remove()
		require.Contains(t, get(t, p, Path, "").Body.String(), "not the leader", "what has ended is not shown a second longer")
	})
}

// pipes is a listener whose connections have no buffers.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// dial sends a request for the page.
func (p pipes) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	p <- server
	request(t, client, Path)
	return client, bufio.NewReader(client)
}

func request(t *testing.T, c net.Conn, path string) {
	t.Helper()
	_, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: kcm\r\n\r\n")
	require.NoError(t, err)
}

func status(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	response, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

func TestReadersThatStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{n: 5 * MaxRows, began: time.Now()}
		p := &Page{}
		p.Add(c)
		listener := make(pipes)
		handler := http.NewServeMux()
		handler.Handle(Path, p)
		handler.HandleFunc("/other", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
		server := &http.Server{Handler: handler}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		const early = 8
		for range early {
			listener.dial(t)
		}
		synctest.Wait()
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(4<<20), "they share what they do not read")
		require.EqualValues(t, 1, c.asked.Load())
		conn, answer := listener.dial(t)
		require.Equal(t, http.StatusOK, status(t, answer), "others are served")
		synctest.Wait() // Who has read all still counts until its handler returns.

		for range maxReaders - early {
			listener.dial(t)
		}
		synctest.Wait()
		request(t, conn, Path)
		require.Equal(t, http.StatusServiceUnavailable, status(t, answer), "up to a number")
		time.Sleep(writeFor + time.Second)
		synctest.Wait()
		p.mu.Lock()
		require.Zero(t, p.readers, "who does not read is given up")
		p.mu.Unlock()
		time.Sleep(time.Hour)
		request(t, conn, Path)
		require.Equal(t, http.StatusOK, status(t, answer))
		time.Sleep(time.Hour)
		request(t, conn, "/other")
		require.Equal(t, http.StatusOK, status(t, answer), "the deadline of a page is not one of its connection")
	})
}

func TestTextFromElsewhereIsPlain(t *testing.T) {
	for text, want := range map[string]string{
		"":                           "",
		"pods unknown (NoServer)":    "pods unknown (NoServer)",
		"größer – ok":                "größer – ok",
		"\x1b[2J\nowned\ttab":        `\x1b[2J\nowned\ttab`,
		"bad \xff byte":              `bad \xff byte`,
		strings.Repeat("x", 600):     strings.Repeat("x", maxText) + "…",
		strings.Repeat("ä", maxText): strings.Repeat("ä", maxText/2) + "…",
	} {
		require.Equal(t, want, plain(text))
	}
	bad := exampleTerm()
	bad.caches[1].Detail, bad.waits[0].Why = "\x1b[2J detail\n", "\x1b[2J why\n"
	p := &Page{}
	p.Add(bad)
	require.NotContains(t, get(t, p, Path, "").Body.String(), "\x1b")
}
