// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalenessz

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/munnerz/goautoneg"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// Path of the page.
const Path = "/stalenessz"

// Wait is something that is not done now because a cache may be stale.
type Wait struct {
	// Controller and Owner, as "namespace/name", say who waits; Resource is the cache that it waits for.
	Controller string
	Owner      string
	Resource   schema.GroupResource
	// Reason says in a word what for, as the metric of parked owners does; For is what has to happen, Why why it has not.
	Reason, For, Why string
	Since            time.Time
}

// Reasons of waits besides the tracker's own.
const (
	// ForStart: a cache is not proven as new as the start of leadership.
	ForStart = "start"
	// ForUnsettled: it is not known whether a write was made whose answer was lost.
	ForUnsettled = "unsettled_write"
	// ForUnseen: a cache does not show the owner's last write to a resource, and another one would rest on it. The rest of the reconcile goes on.
	ForUnseen = "unseen_write"
	// ForAction: a cache is not proven as new as a disruptive action needs it. The rest of the reconcile goes on.
	ForAction = "action"
)

// Term is one term of leadership of this process.
type Term interface {
	// Caches are those that the monitor probes; none if it is off.
	Caches() []stalenessmonitor.Cache
	// Objects is the number of objects in one of them.
	Objects(resource schema.GroupVersionResource) int
	// Waits hands over what waits, in any order.
	Waits(out *Longest)
	// Recorded is the number of objects with recorded writes that a cache does not show yet.
	Recorded() int
}

// Page serves /stalenessz for the terms of leadership of this process: HTML for a browser, plain text
// for other clients, and JSON (see Stalenessz) if asked for by "Accept: application/json" or
// ?format=json. It asks the server nothing.
//
// Its cost is bounded, however many waits and readers there are: a table has MaxRows rows at most and says how many there
// would be, all readers share one answer a second, at most maxReaders are served at a time, and each of them for
// writeFor at most.
type Page struct {
	// Monitoring and Consistency say which gates are on.
	Monitoring, Consistency bool

	mu      sync.Mutex
	terms   []Term
	readers int

	// making is held while an answer is made; those who come meanwhile share it.
	making sync.Mutex
	made   *answer
}

const (
	// sharedFor is how long an answer is given to all who ask.
	sharedFor = time.Second
	// maxReaders is how many are served at a time, and writeFor how long one may take to read its answer.
	maxReaders = 16
	writeFor   = 10 * time.Second
	// maxText is how much is shown of a text that comes from elsewhere, in bytes.
	maxText = 500
)

var _ http.Handler = (*Page)(nil)

// Add shows a term until remove is called.
func (p *Page) Add(t Term) (remove func()) {
	p.mu.Lock()
	p.terms = append(p.terms, t)
	p.mu.Unlock()
	p.forget()
	return func() {
		p.mu.Lock()
		if i := slices.Index(p.terms, t); i >= 0 {
			p.terms = slices.Delete(p.terms, i, i+1)
		}
		p.mu.Unlock()
		p.forget()
	}
}

// forget has the next answer made again.
func (p *Page) forget() {
	p.making.Lock()
	defer p.making.Unlock()
	p.made = nil
}

func (p *Page) current() []Term {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.terms)
}

// Caches returns each resource once: with leader migration two terms may have an informer for one, and
// then it is the one of which less is proven.
func (p *Page) Caches() []stalenessmonitor.Cache {
	terms := p.current()
	if len(terms) == 1 {
		return terms[0].Caches()
	}
	var out []stalenessmonitor.Cache
	at := map[schema.GroupVersionResource]int{}
	for _, t := range terms {
		for _, c := range t.Caches() {
			i, twice := at[c.Resource]
			switch {
			case !twice:
				at[c.Resource] = len(out)
				out = append(out, c)
			case c.Proven.Before(out[i].Proven):
				out[i] = c
			}
		}
	}
	return out
}

// view is what all forms of the page are made from.
type view struct {
	Now         time.Time
	Leading     bool
	Monitoring  bool
	Consistency bool
	// Caches and Waits are the rows that are shown, of CachesTotal and WaitsTotal.
	Caches                  []cacheView
	Waits                   []Wait
	CachesTotal, WaitsTotal int
	Counts                  map[stalenessmonitor.State]int
	// Handlers is how many event handlers there are, Behind those of BehindTotal that are furthest behind.
	Handlers, BehindTotal int
	Behind                []handlerView
}

type handlerView struct {
	stalenessmonitor.Handler
	Resource schema.GroupResource
	// Stored is the resource version of the store.
	Stored string
}

type cacheView struct {
	stalenessmonitor.Cache
	Objects int
}

func (p *Page) view() view {
	terms := p.current()
	v := view{Now: time.Now(), Leading: len(terms) > 0, Monitoring: p.Monitoring, Consistency: p.Consistency, Counts: map[stalenessmonitor.State]int{}}
	for _, c := range p.Caches() {
		c.Detail = plain(c.Detail)
		v.Caches = append(v.Caches, cacheView{Cache: c})
		v.Counts[c.State]++
		v.Handlers += len(c.Handlers)
		for _, h := range c.Handlers {
			if h.Lag > 0 {
				v.Behind = append(v.Behind, handlerView{h, c.Resource.GroupResource(), c.Stored})
			}
		}
	}
	slices.SortStableFunc(v.Caches, func(a, b cacheView) int { return cmp.Compare(urgency(a.State), urgency(b.State)) })
	slices.SortStableFunc(v.Behind, func(a, b handlerView) int { return cmp.Compare(b.Lag, a.Lag) })
	v.CachesTotal, v.BehindTotal = len(v.Caches), len(v.Behind)
	v.Caches, v.Behind = v.Caches[:min(len(v.Caches), MaxRows)], v.Behind[:min(len(v.Behind), MaxRows)]
	for i, c := range v.Caches {
		for _, t := range terms {
			v.Caches[i].Objects = max(v.Caches[i].Objects, t.Objects(c.Resource))
		}
	}
	var waits Longest
	for _, t := range terms {
		t.Waits(&waits)
	}
	v.Waits, v.WaitsTotal = waits.Rows(), waits.Total()
	for i, w := range v.Waits {
		v.Waits[i].For, v.Waits[i].Why = plain(w.For), plain(w.Why)
	}
	return v
}

// plain is a text from elsewhere, such as a server's error, as it may be shown on a terminal: without control
// characters, and not too long.
func plain(text string) string {
	cut := ""
	if len(text) > maxText {
		text, cut = strings.ToValidUTF8(text[:maxText], ""), "…"
	}
	if !utf8.ValidString(text) || strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		text = strings.Trim(strconv.Quote(text), `"`)
	}
	return text + cut
}

// urgency puts first what needs a look.
func urgency(s stalenessmonitor.State) int {
	switch s {
	case stalenessmonitor.Stalled:
		return 0
	case stalenessmonitor.Lagging:
		return 1
	case stalenessmonitor.Unknown:
		return 2
	}
	return 3
}

// answer is the page at a time, in the forms that were asked for.
type answer struct {
	view  view
	forms map[string][]byte
}

// answer returns the page in a form that there is. It is not older than sharedFor.
func (p *Page) answer(form string) ([]byte, error) {
	p.making.Lock()
	defer p.making.Unlock()
	if p.made == nil || time.Since(p.made.view.Now) >= sharedFor {
		p.made = &answer{view: p.view(), forms: map[string][]byte{}}
	}
	if body, ok := p.made.forms[form]; ok {
		return body, nil
	}
	var b bytes.Buffer
	if err := forms[form].write(p.made.view, &b); err != nil {
		return nil, err
	}
	p.made.forms[form] = b.Bytes()
	return b.Bytes(), nil
}

var forms = map[string]struct {
	contentType string
	write       func(view, io.Writer) error
}{
	"json": {"application/json", func(v view, w io.Writer) error {
		lines := json.NewEncoder(w)
		lines.SetIndent("", "  ")
		return lines.Encode(v.structured())
	}},
	"html": {"text/html; charset=utf-8", func(v view, w io.Writer) error { return htmlPage.Execute(w, v) }},
	"text": {"text/plain; charset=utf-8", view.text},
}

// enter is false if too many read already. Otherwise leave is to be called.
func (p *Page) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readers >= maxReaders {
		return false
	}
	p.readers++
	return true
}

func (p *Page) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers--
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
		return
	}
	form := form(r)
	if _, ok := forms[form]; !ok {
		http.Error(w, "unknown format: use json, html or text", http.StatusBadRequest)
		return
	}
	if !p.enter() {
		h.Set("Retry-After", "1")
		http.Error(w, "too many readers at the same time; try again", http.StatusServiceUnavailable)
		return
	}
	defer p.leave()
	body, err := p.answer(form)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", forms[form].contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if form == "html" {
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	}
	// If the connection has no deadlines, the number of readers is still bounded. The server resets the deadline.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeFor))
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(body); err != nil {
		klog.FromContext(r.Context()).V(2).Info("Failed to write the page", "path", Path, "err", err)
	}
}

// form is the format asked for: by name, else the one that the client likes best of those that the page has.
func form(r *http.Request) string {
	if f := r.URL.Query().Get("format"); f != "" {
		return f
	}
	switch goautoneg.Negotiate(r.Header.Get("Accept"), []string{"text/plain", "application/json", "text/html"}) {
	case "application/json":
		return "json"
	case "text/html":
		return "html"
	}
	return "text"
}
