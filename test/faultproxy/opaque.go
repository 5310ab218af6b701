// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// OpaqueRVs makes resource versions opaque to the client: each number n that the backend sends becomes "v-n",
// in lists and their items, watch events, bookmarks, and the answers to gets and writes, subresources
// included. What the client sends back in a query, an object, a patch or a precondition becomes the number
// again, also after the fault was cleared, since the client may still have it.
//
// Frames that wait in the proxy when the fault is injected keep their numbers. Tables and the text of error
// messages are left as they are. Progress, the journal and other faults go on seeing the backend's numbers.
type OpaqueRVs struct {
	// Match selects the objects whose versions become opaque; nil selects all, lists and bookmarks too. Lists
	// have neither type nor name, bookmarks no name, and objects outside of a watch stream no type. For one
	// object it should always say the same.
	Match func(Event) bool
}

func (o OpaqueRVs) behaviour() (behaviour, error) {
	match := o.Match
	if match == nil {
		match = func(Event) bool { return true }
	}
	return behaviour{kind: "OpaqueRVs", opaque: match}, nil
}

const opaquePrefix = "v-"

func toOpaque(version string) string {
	if _, err := strconv.ParseUint(version, 10, 64); err != nil {
		return version
	}
	return opaquePrefix + version
}

func fromOpaque(_ Event, version string) string {
	if number, ok := strings.CutPrefix(version, opaquePrefix); ok && toOpaque(number) != number {
		return number
	}
	return version
}

// opaqueTo is how a fault maps versions on their way to the client, and counts what it changed.
func (f *Fault) opaqueTo(changed *int) versionMap {
	return func(e Event, version string) string {
		if !f.b.opaque(e) {
			return version
		}
		out := toOpaque(version)
		if out != version {
			*changed++
		}
		return out
	}
}

// rewriteFrame makes a frame's version opaque. Bytes that cannot be rewritten end the stream, because passing
// them on would mix the client's two worlds unseen.
func (f *Fault) rewriteFrame(fr *frame, proto bool, stream int64) error {
	if fr.event.ResourceVersion == "" {
		return nil
	}
	var changed int
	rewrite := rewriteJSONEvent
	if proto {
		rewrite = rewriteProtobufEvent
	}
	raw, err := rewrite(fr.raw, fr.event.Type, f.opaqueTo(&changed))
	if err != nil {
		return fmt.Errorf("make a watch event opaque: %w", err)
	}
	if changed > 0 {
		fr.raw = raw
		f.did(ActionRewritten, stream, fr)
	}
	return nil
}

// opaqueFaults are those of the faults that rewrite versions.
func opaqueFaults(faults []*Fault) []*Fault {
	var out []*Fault
	for _, f := range faults {
		if f.b.opaque != nil {
			out = append(out, f)
		}
	}
	return out
}

// wasOpaque says whether the client may hold opaque versions of the resource.
func (p *Proxy) wasOpaque(gr schema.GroupResource) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opaque.Has(gr)
}

// restoreRequest turns the opaque versions of a request into numbers.
func restoreRequest(r *http.Request) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fmt.Errorf("query: %w", err)
	}
	const parameter = "resourceVersion"
	if version := query.Get(parameter); fromOpaque(Event{}, version) != version {
		query.Set(parameter, fromOpaque(Event{}, version))
		u := *r.URL // the server's own URL stays as it came
		u.RawQuery = query.Encode()
		r.URL = &u
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	if body, err = rewriteBody(r.Header.Get("Content-Type"), body, fromOpaque); err != nil {
		return fmt.Errorf("body: %w", err)
	}
	setBody(&r.Body, &r.ContentLength, r.Header, body)
	return nil
}

// makeResponseOpaque rewrites the answer to anything but a watch.
func makeResponseOpaque(res *http.Response, faults []*Fault, req Request) error {
	if res.StatusCode >= 300 || !rewritable(res.Header.Get("Content-Type")) {
		return nil
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if err := res.Body.Close(); err != nil {
		return err
	}
	for _, f := range faults {
		var changed int
		if body, err = rewriteBody(res.Header.Get("Content-Type"), body, f.opaqueTo(&changed)); err != nil {
			return fmt.Errorf("make the answer to %s %s opaque: %w", req.Verb, req.Resource, err)
		}
		if changed > 0 {
			f.didRequest(ActionRewritten, req)
		}
	}
	setBody(&res.Body, &res.ContentLength, res.Header, body)
	return nil
}

func setBody(body *io.ReadCloser, length *int64, header http.Header, to []byte) {
	*body, *length = io.NopCloser(bytes.NewReader(to)), int64(len(to))
	if header.Get("Content-Length") != "" {
		header.Set("Content-Length", strconv.Itoa(len(to)))
	}
}

// rewritable leaves out what holds no object: logs, metrics of pods and the like.
func rewritable(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasPrefix(mediaType, "application/")
}

func rewriteBody(contentType string, body []byte, m versionMap) ([]byte, error) {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil && contentType != "" {
		return nil, fmt.Errorf("content type %q: %w", contentType, err)
	}
	switch mediaType {
	case runtime.ContentTypeProtobuf:
		return rewriteProtobuf(body, m)
	case "", runtime.ContentTypeJSON, string(types.MergePatchType), string(types.StrategicMergePatchType), string(types.ApplyYAMLPatchType):
		return rewriteJSON(body, m) // YAML that is not JSON stays as it is; apply needs no version
	case string(types.JSONPatchType):
		return rewriteJSONPatch(body, m)
	}
	return nil, fmt.Errorf("content type %q is not one that the proxy can rewrite", mediaType)
}

// rewriteJSONPatch maps the values of the operations on the resource version itself.
func rewriteJSONPatch(raw []byte, m versionMap) ([]byte, error) {
	var ops []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &ops); err != nil {
		return nil, fmt.Errorf("JSON patch: %w", err)
	}
	for _, op := range ops {
		var path, version string
		if optionalJSON(op["path"], &path) != nil || path != "/metadata/resourceVersion" || optionalJSON(op["value"], &version) != nil {
			continue
		}
		value, err := json.Marshal(m(Event{}, version))
		if err != nil {
			return nil, fmt.Errorf("JSON patch: %w", err)
		}
		op["value"] = value
	}
	return json.Marshal(ops)
}
