// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	flowcontrol "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Servers that cannot render partial objects may answer with whole ones, in JSON.
const (
	acceptList  = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	acceptWatch = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)

// client sends metadata-only reads, each once: the prover decides whether and when to ask again,
// so client-go's own retries and limits are off.
type client struct {
	config *rest.Config
	rest   atomic.Pointer[rest.RESTClient]
	budget *rate.Limiter
	// timeout is how long a list of a resource may take.
	timeout func(gvr schema.GroupVersionResource) time.Duration
	metrics Metrics
	// levelSeen is called with the UID of the priority level of each answer.
	levelSeen func(gvr schema.GroupVersionResource, level string)
}

func newClient(o Options, b *rate.Limiter) (*client, error) {
	config := rest.CopyConfig(o.Config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	config.UserAgent += " freshness"
	config.QPS, config.RateLimiter, config.Timeout = -1, nil, 0
	config.APIPath, config.GroupVersion = "/", &schema.GroupVersion{}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.AcceptContentTypes, config.ContentType = "", "application/json"
	if config.Dial == nil && config.Transport == nil {
		// A connection of its own: if that of the informers' watches is half open, fences must
		// still work. See connect, too.
		config.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return observer{rt} })
	c := &client{config: config, budget: b, metrics: o.Metrics}
	return c, c.connect()
}

// list reads one page. An empty token is a consistent read.
func (c *client) list(ctx context.Context, gvr schema.GroupVersionResource, limit int, token string) (*metav1.PartialObjectMetadataList, *failure) {
	req := c.rest.Load().Get().AbsPath(collectionPath(gvr)...).Param("limit", strconv.Itoa(limit))
	if token != "" {
		req = req.Param("continue", token)
	}
	most := maxPage
	if limit == 1 {
		most = maxFence
	}
	return c.readList(ctx, gvr, req, most)
}

// noName is a name that no object and no namespace has.
const noName = "fresh-kcm-fence"

// listNothing is a consistent read that brings the collection's RV and no object, so that it costs
// some hundred bytes however large the objects' metadata are.
func (c *client) listNothing(ctx context.Context, gvr schema.GroupVersionResource, namespaced bool) (*metav1.PartialObjectMetadataList, *failure) {
	path := collectionPath(gvr)
	req := c.rest.Load().Get().Param("limit", "1")
	if namespaced {
		last := len(path) - 1
		path = append(path[:last:last], "namespaces", noName, gvr.Resource)
	} else {
		req = req.Param("fieldSelector", "metadata.name="+noName)
	}
	return c.readList(ctx, gvr, req.AbsPath(path...), maxFence)
}

func (c *client) readList(ctx context.Context, gvr schema.GroupVersionResource, req *rest.Request, limit int) (*metav1.PartialObjectMetadataList, *failure) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout(gvr))
	defer cancel()
	ctx, x := c.begin(ctx, gvr, limit)
	result := req.MaxRetries(0).SetHeader("Accept", acceptList).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, x.classify(err)
	}
	raw, err := result.Raw()
	if err != nil {
		return nil, x.classify(err)
	}
	list, err := decodeList(result, raw)
	if err != nil {
		return nil, refusal("%w", readable{err})
	}
	return list, nil
}

func decodeList(result rest.Result, raw []byte) (*metav1.PartialObjectMetadataList, error) {
	obj, err := result.Get()
	if err == nil {
		list, ok := obj.(*metav1.PartialObjectMetadataList)
		if !ok {
			return nil, fmt.Errorf("decoding a list of metadata: got %T", obj)
		}
		return list, nil
	}
	if !runtime.IsNotRegisteredError(err) {
		return nil, fmt.Errorf("decoding a list of metadata: %w", err)
	}
	// Whole objects: their JSON has the metadata in the same places.
	list := &metav1.PartialObjectMetadataList{}
	if err := json.Unmarshal(raw, list); err != nil {
		return nil, fmt.Errorf("decoding a list as metadata: %w", err)
	}
	return list, nil
}

// watch starts a metadata watch from rv that the server ends after seconds.
func (c *client) watch(ctx context.Context, gvr schema.GroupVersionResource, rv string, seconds int) (watch.Interface, *failure) {
	ctx, x := c.begin(ctx, gvr, maxWatch)
	w, err := c.rest.Load().Get().AbsPath(collectionPath(gvr)...).MaxRetries(0).
		SetHeader("Accept", acceptWatch).
		Param("watch", "true").Param("resourceVersion", rv).Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.Itoa(seconds)).
		Watch(ctx)
	if err != nil {
		return nil, x.classify(err)
	}
	return w, nil
}

func collectionPath(gvr schema.GroupVersionResource) []string {
	if gvr.Group == "" {
		return []string{"api", gvr.Version, gvr.Resource}
	}
	return []string{"apis", gvr.Group, gvr.Version, gvr.Resource}
}

// How many bytes of an answer are read at most, decompressed. A fence may bring one object's metadata, or a whole object in JSON.
const (
	maxFence = 8 << 20
	maxPage  = 64 << 20
	maxWatch = 64 << 20
)

// exchange is one request and what the caller learns of its answer.
type exchange struct {
	limit    int
	headers  http.Header
	answered func(http.Header)
	read     func(n int)
	tooLong  atomic.Bool
}

type exchangeKey struct{}

func (c *client) begin(ctx context.Context, gvr schema.GroupVersionResource, limit int) (context.Context, *exchange) {
	x := &exchange{
		limit: limit,
		read:  func(n int) { c.metrics.Bytes(gvr, n) },
		answered: func(h http.Header) {
			if level := h.Get(flowcontrol.ResponseHeaderMatchedPriorityLevelConfigurationUID); level != "" && len(level) <= maxLevel {
				c.levelSeen(gvr, level)
			}
		},
	}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

func (x *exchange) classify(err error) *failure {
	if x.tooLong.Load() {
		return refusal("the answer is longer than %d bytes", x.limit)
	}
	return classify(err, x.headers)
}

// observer gives the caller the response's headers, of which client-go drops Retry-After when the
// body is a Status without one, and counts and limits what is read of the body.
type observer struct{ next http.RoundTripper }

func (o observer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	if x, ok := req.Context().Value(exchangeKey{}).(*exchange); ok && resp != nil {
		x.headers = resp.Header
		x.answered(resp.Header)
		resp.Body = &countedBody{ReadCloser: resp.Body, x: x, left: x.limit}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (o observer) WrappedRoundTripper() http.RoundTripper { return o.next }

type countedBody struct {
	io.ReadCloser
	x    *exchange
	left int
}

var errTooLong = errors.New("answer is too long")

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.x.read(n)
	}
	if b.left -= n; b.left < 0 {
		b.x.tooLong.Store(true)
		return 0, errTooLong
	}
	return n, err
}
