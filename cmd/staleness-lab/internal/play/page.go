// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
)

// KCM answers on its secure port.
type KCM interface {
	Get(ctx context.Context, path string) ([]byte, error)
}

// ReadPage reads /stalenessz.
func ReadPage(ctx context.Context, kcm KCM) (*stalenessz.Stalenessz, error) {
	body, err := kcm.Get(ctx, "/stalenessz?format=json")
	if err != nil {
		return nil, err
	}
	page := &stalenessz.Stalenessz{}
	if err := json.Unmarshal(body, page); err != nil {
		return nil, fmt.Errorf("reading /stalenessz: %w", err)
	}
	return page, nil
}

// CacheName is the resource of a cache as kubectl writes it.
func CacheName(c stalenessz.StalenesszCache) string {
	return schema.GroupResource{Group: c.Group, Resource: c.Resource}.String()
}

// WaitText says who waits for what.
func WaitText(w stalenessz.StalenesszWait) string {
	return fmt.Sprintf("%s %s waits for %s: %s", w.Controller, w.Owner, schema.GroupResource{Group: w.Group, Resource: w.Resource}, w.For)
}

// Healthy says that nothing is known to be amiss with a cache.
func Healthy(c stalenessz.StalenesszCache) bool {
	return c.State == stalenessmonitor.Fresh || c.State == stalenessmonitor.Quiet
}

// cacheOf finds the cache of a resource.
func cacheOf(page *stalenessz.Stalenessz, gr schema.GroupResource) (stalenessz.StalenesszCache, bool) {
	for _, c := range page.Caches {
		if c.Group == gr.Group && c.Resource == gr.Resource {
			return c, true
		}
	}
	return stalenessz.StalenesszCache{}, false
}

// endedWatches reads how many stalled watches of a resource the process has ended.
func endedWatches(metrics []byte, gr schema.GroupResource) int {
	total := 0
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "informer_staleness_ended_watches_total{") &&
			strings.Contains(line, `group="`+gr.Group+`"`) && strings.Contains(line, `resource="`+gr.Resource+`"`) {
			if n, err := strconv.Atoi(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:])); err == nil {
				total += n
			}
		}
	}
	return total
}
