// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package skew makes one client's clock wrong without touching it: it stands between the client and the
// apiserver and shifts every time in what they tell each other, so that to the client all other clocks are off
// by as much as its own would be off to them. What the client writes is shifted back: to everybody else it is
// a client whose clock is wrong.
//
// The client must talk JSON; what it would rather be answered in protobuf, it is answered in JSON.
package skew

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Options describe a proxy.
type Options struct {
	// Server is the URL of the apiserver, or of another proxy, whose certificate is signed by one of CAs.
	Server string
	CAs    *x509.CertPool
	// Cert is shown to the client.
	Cert tls.Certificate
	// Ahead is how far the client's clock is ahead of all others.
	Ahead time.Duration
}

// Proxy is one running proxy. Its methods may be called from any goroutine.
type Proxy struct {
	url             string
	server          *http.Server
	cancel          context.CancelFunc
	ahead           time.Duration
	told, toldTimes atomic.Int64
}

// Start starts a proxy on loopback. It lives until Close.
func Start(o Options) (*Proxy, error) {
	target, err := url.Parse(o.Server)
	if err != nil {
		return nil, fmt.Errorf("skew: server's URL: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("skew: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{url: "https://" + listener.Addr().String(), cancel: cancel, ahead: o.Ahead}
	quiet := log.New(io.Discard, "", 0)
	p.server = &http.Server{
		Handler: p.shiftRequests(&httputil.ReverseProxy{
			Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:      &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: o.CAs}},
			FlushInterval:  -1,
			ErrorLog:       quiet,
			ModifyResponse: p.shiftResponse,
		}),
		TLSConfig:   &tls.Config{Certificates: []tls.Certificate{o.Cert}, NextProtos: []string{"h2", "http/1.1"}},
		ErrorLog:    quiet,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		if err := p.server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			log.Printf("skew: serving ended: %v", err)
		}
	}()
	return p, nil
}

// URL is where the client finds it.
func (p *Proxy) URL() string { return p.url }

// Shifted is how many times of day in how many answers and events the client was told otherwise.
func (p *Proxy) Shifted() (times, pieces int64) { return p.toldTimes.Load(), p.told.Load() }

// Close ends it.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.server.Close()
}

// shiftRequests shifts what the client writes to everybody else's time.
func (p *Proxy) shiftRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Content-Type"), "protobuf") {
			http.Error(w, "skew: the client must talk JSON", http.StatusUnsupportedMediaType)
			return
		}
		r.Header.Del("Accept-Encoding") // to read the answer
		r.Header.Set("Accept", inJSON(r.Header.Get("Accept")))
		if r.Body != nil && r.Body != http.NoBody {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			body, _ = shift(body, -p.ahead)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		}
		next.ServeHTTP(w, r)
	})
}

// inJSON takes the forms in protobuf out of what a client accepts.
func inJSON(accept string) string {
	var forms []string
	for form := range strings.SplitSeq(accept, ",") {
		if form != "" && !strings.Contains(form, "protobuf") {
			forms = append(forms, form)
		}
	}
	if len(forms) == 0 {
		return "application/json"
	}
	return strings.Join(forms, ",")
}

// shiftResponse shifts what the client is told: whose clock is ahead, to him the others' times are older.
func (p *Proxy) shiftResponse(res *http.Response) error {
	if !strings.Contains(res.Header.Get("Content-Type"), "json") {
		return nil
	}
	if res.Request.URL.Query().Get("watch") != "" {
		res.Body = &lines{proxy: p, body: res.Body, reader: bufio.NewReader(res.Body)}
		return nil
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil {
		return err
	}
	body = p.toClient(body)
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

func (p *Proxy) toClient(body []byte) []byte {
	out, n := shift(body, p.ahead)
	p.told.Add(1)
	p.toldTimes.Add(int64(n))
	return out
}

// lines hands a watch on, event by event.
type lines struct {
	proxy  *Proxy
	body   io.Closer
	reader *bufio.Reader
	rest   []byte
}

func (l *lines) Read(buf []byte) (int, error) {
	if len(l.rest) == 0 {
		line, err := l.reader.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		l.rest = l.proxy.toClient(line)
	}
	n := copy(buf, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

func (l *lines) Close() error { return l.body.Close() }

var timeOfDay = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)

// shift makes every time in a text older by a difference, keeping its precision, and counts them.
func shift(text []byte, older time.Duration) ([]byte, int) {
	n := 0
	return timeOfDay.ReplaceAllFunc(text, func(quoted []byte) []byte {
		const second, micro = `"2006-01-02T15:04:05Z"`, `"2006-01-02T15:04:05.000000Z"`
		layout := second
		if bytes.IndexByte(quoted, '.') >= 0 {
			layout = micro
		}
		at, err := time.Parse(second, string(quoted)) // takes fractions as well
		if err != nil {
			return quoted
		}
		n++
		return []byte(at.Add(-older).Format(layout))
	}), n
}
