// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

// touched is the annotation by which the lab changes an object, so that there is something to hold back.
const touched = "lab.fresh-kcm.io/changed-at"

// hold holds the kube-controller-manager's watches of a resource back.
func (p *Player) hold(ctx context.Context, name string, d time.Duration, r *report) error {
	mapping, err := p.resource(name)
	if err != nil {
		return err
	}
	gr := mapping.Resource.GroupResource()
	fault, err := p.Proxy.Inject(faultproxy.Target{Resource: gr}, faultproxy.Hold{})
	if err != nil {
		return err
	}
	defer fault.Clear()
	if fault.Stats().Streams == 0 {
		return fmt.Errorf("kube-controller-manager does not watch %s: name a resource that it watches", gr)
	}
	r.line("the %s watches of kube-controller-manager are stalled for %v: no change arrives", gr, d)
	object, err := p.touch(ctx, mapping)
	switch {
	case err != nil:
		return err
	case object == "":
		r.line("there is no object that could change; create one")
	default:
		r.line("changed %s (an annotation), so its cache of %s is stale", object, gr)
	}
	for _, line := range tryHolding[gr] {
		r.text("%s", line)
	}

	o := &observer{report: r, gr: gr, waiting: map[string]bool{}}
	if o.before, err = p.endedWatches(ctx, gr); err != nil {
		return err
	}
	if _, err := watch(ctx, d, func(ctx context.Context) bool {
		p.observe(ctx, o)
		return false
	}); err != nil {
		return err
	}
	fault.Clear()
	released := time.Now()
	stats := fault.Stats()
	r.line("released: %d events were held back", stats.Held.Frames)
	healed, err := watch(ctx, healLimit, func(ctx context.Context) bool { return p.observe(ctx, o) && len(o.waiting) == 0 })
	if err != nil {
		return err
	}
	if healed {
		r.line("Fresh KCM: its cache of %s is %s, and nothing waits for it, %.1f s after the release", gr, o.state, time.Since(released).Seconds())
	} else {
		r.line("Fresh KCM: the cache or an object still waits %v after the release: see /stalenessz", healLimit)
	}
	r.text("Stock upstream: %s", stockHolding(gr))
	return nil
}

// resource finds what a user calls "nodes", "deploy" or "leases.coordination.k8s.io".
func (p *Player) resource(name string) (*apimeta.RESTMapping, error) {
	groups, err := restmapper.GetAPIGroupResources(p.Client.Discovery())
	if err != nil {
		return nil, fmt.Errorf("asking for the resources: %w", err)
	}
	mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), memory.NewMemCacheClient(p.Client.Discovery()), nil)
	gvr, err := mapper.ResourceFor(schema.ParseGroupResource(strings.ToLower(name)).WithVersion(""))
	if err != nil {
		return nil, fmt.Errorf("the cluster has no resource %q", name)
	}
	kind, err := mapper.KindFor(gvr)
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", gvr.GroupResource(), err)
	}
	return mapper.RESTMapping(kind.GroupKind(), kind.Version)
}

// touch changes one object and returns its name, or nothing if there is none.
func (p *Player) touch(ctx context.Context, mapping *apimeta.RESTMapping) (string, error) {
	client, err := metadata.NewForConfig(p.Cluster.AdminConfig())
	if err != nil {
		return "", err
	}
	objects := client.Resource(mapping.Resource)
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", fmt.Errorf("listing %s: %w", mapping.Resource.GroupResource(), err)
	}
	if len(list.Items) == 0 {
		return "", nil
	}
	object := list.Items[0]
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, touched, time.Now().UTC().Format(time.RFC3339Nano))
	if _, err := objects.Namespace(object.Namespace).Patch(ctx, object.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return "", fmt.Errorf("changing %s %s: %w", mapping.Resource.GroupResource(), object.Name, err)
	}
	if object.Namespace != "" {
		return object.Namespace + "/" + object.Name, nil
	}
	return object.Name, nil
}

func (p *Player) endedWatches(ctx context.Context, gr schema.GroupResource) (int, error) {
	metrics, err := p.KCM.Get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	return endedWatches(metrics, gr), nil
}

// observer remembers what was said of a resource.
type observer struct {
	*report
	gr    schema.GroupResource
	state stalenessmonitor.State
	// before is how many watches had been ended before, ended how many since.
	before, ended int
	waiting       map[string]bool
}

// observe says what is new on the page, and reports whether the resource's cache is healthy. A page that cannot be read
// now is read the next time.
func (p *Player) observe(ctx context.Context, o *observer) bool {
	page, err := ReadPage(ctx, p.KCM)
	if err != nil {
		return false
	}
	if n, err := p.endedWatches(ctx, o.gr); err == nil && n-o.before > o.ended {
		o.ended = n - o.before
		o.line("Fresh KCM: ended the stalled watch and took up a new one (%d so far)", o.ended)
	}
	return o.page(page)
}

// page says what is new on a page.
func (o *observer) page(page *stalenessz.Stalenessz) bool {
	now := map[string]bool{}
	for _, w := range page.Waits {
		text := WaitText(w)
		now[text] = true
		if !o.waiting[text] {
			o.line("Fresh KCM: %s", text)
		}
	}
	for text := range o.waiting {
		if !now[text] {
			o.line("Fresh KCM: no longer waits: %s", text)
		}
	}
	o.waiting = now
	c, ok := cacheOf(page, o.gr)
	if !ok {
		if o.state == "" {
			o.line("Fresh KCM: no age is measured for %s (MonitorInformerStaleness is off)", o.gr)
		}
		o.state = stalenessmonitor.Unknown
		return true
	}
	if c.State != o.state {
		age := "of unknown age"
		if c.AgeSeconds != nil {
			age = fmt.Sprintf("at most %.0f s old", *c.AgeSeconds)
		}
		reason := ""
		if c.Reason != "" {
			reason = fmt.Sprintf(" (%s: %s)", c.Reason, c.Detail)
		}
		o.line("Fresh KCM: its cache of %s is %s, %s%s", o.gr, c.State, age, reason)
	}
	o.state = c.State
	return Healthy(c)
}
