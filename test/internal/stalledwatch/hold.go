// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalledwatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
)

const (
	// lookEvery is how often the page is looked at.
	lookEvery = 200 * time.Millisecond
	// spread is over what time watches are held, so that each is at another moment of its period.
	spread = 2 * stalenessmonitor.Period
	// patience bounds how long it may take until all is well after a fault. It judges nothing.
	patience = 2 * time.Minute
)

// Inject puts a fault on kube-controller-manager's requests.
type Inject func(faultproxy.Target, faultproxy.Effect) (*faultproxy.Fault, error)

// Informers are the watches of kube-controller-manager's informers, and none of its probes.
func Informers(resource schema.GroupResource) faultproxy.Target {
	return faultproxy.Target{Resource: resource, Match: func(r faultproxy.Request) bool { return strings.HasSuffix(r.Client, "-informers") }}
}

// Late says that the page calls a cache behind.
func Late(s stalenessmonitor.State) bool {
	return s == stalenessmonitor.Lagging || s == stalenessmonitor.Stalled
}

// Complete says that nothing is known to be missing.
func Complete(s stalenessmonitor.State) bool {
	return s == stalenessmonitor.Fresh || s == stalenessmonitor.Quiet
}

// ReadPage reads kube-controller-manager's page.
func ReadPage(ctx context.Context, kcm *controlplane.KCM) (page stalenessz.Stalenessz, err error) {
	body, err := kcm.Get(ctx, stalenessz.Path+"?format=json")
	if err != nil {
		return page, err
	}
	return page, json.Unmarshal(body, &page)
}

// Find finds a resource on the page.
func Find(page stalenessz.Stalenessz, resource schema.GroupResource) (stalenessz.StalenesszCache, bool) {
	i := slices.IndexFunc(page.Caches, func(c stalenessz.StalenesszCache) bool {
		return c.Group == resource.Group && c.Resource == resource.Resource
	})
	if i < 0 {
		return stalenessz.StalenesszCache{}, false
	}
	return page.Caches[i], true
}

// Hold holds the watches of all kinds, each from another moment on, and changes the object of each that is not busy. It returns,
// in the order of the kinds, after what times the page called their caches behind, once the faults are over and all are complete
// again. It is an error if one is not noticed within the limit, or if nothing was held of it.
func (o *Objects) Hold(ctx context.Context, kcm *controlplane.KCM, inject Inject, limit time.Duration) (took []time.Duration, err error) {
	began := time.Now()
	since := make([]time.Time, len(o.kinds))
	faults := make([]*faultproxy.Fault, len(o.kinds))
	holding, held := errgroup.WithContext(ctx)
	for i, k := range o.kinds {
		delay := spread + rand.N(spread) // What the last round has brought about is over by then.
		holding.Go(func() (err error) {
			if err := faultrig.Sleep(held, time.Until(began.Add(delay))); err != nil {
				return err
			}
			if faults[i], err = inject(Informers(k.Resource.GroupResource()), faultproxy.Hold{}); err != nil {
				return err
			}
			if !k.Busy {
				err = o.Touch(held, k, fmt.Sprint(began.UnixNano()))
			}
			since[i] = time.Now()
			return err
		})
	}
	noticed, err := o.shown(held, kcm, 2*spread+limit, "all held watches to be noticed", Late)
	if err = errors.Join(holding.Wait(), err); err == nil {
		for i, k := range o.kinds {
			took = append(took, max(0, noticed[k.Resource.GroupResource()].Sub(since[i])))
			if faults[i].Stats().Touched() == 0 {
				err = errors.Join(err, fmt.Errorf("nothing was held of %s", k.Resource.GroupResource()))
			}
		}
	}
	for _, fault := range faults {
		if fault != nil {
			fault.Clear()
		}
	}
	if err != nil {
		return nil, err
	}
	_, err = o.shown(ctx, kcm, patience, "the caches to be complete again", Complete)
	return took, err
}

// shown waits until the page has shown a state of each kind's cache that is as wanted, and returns when it did first.
func (o *Objects) shown(ctx context.Context, kcm *controlplane.KCM, limit time.Duration, what string, wanted func(stalenessmonitor.State) bool) (map[schema.GroupResource]time.Time, error) {
	at := map[schema.GroupResource]time.Time{}
	err := faultrig.Wait(ctx, limit, what, func() (bool, error) {
		page, err := ReadPage(ctx, kcm)
		if err != nil {
			return false, err
		}
		for _, k := range o.kinds {
			resource := k.Resource.GroupResource()
			if c, ok := Find(page, resource); ok && at[resource].IsZero() && wanted(c.State) {
				at[resource] = time.Now()
			}
		}
		return len(at) == len(o.kinds), faultrig.Sleep(ctx, lookEvery)
	})
	return at, err
}
