// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Mark is a resource version and when it was first seen.
type Mark struct {
	ResourceVersion string
	Time            time.Time
}

// Reached reports whether the mark is at rv or past it. Nothing was seen yet: false. The error says that
// the two cannot be compared.
func (m Mark) Reached(rv string) (bool, error) {
	if m.ResourceVersion == "" {
		return false, nil
	}
	c, err := resourceversion.CompareResourceVersion(m.ResourceVersion, rv)
	if err != nil {
		return false, fmt.Errorf("resource versions %q and %q: %w", m.ResourceVersion, rv, err)
	}
	return c >= 0, nil
}

// Progress compares what the backend has said about a resource with what the client has been told, over all
// watch streams of the resource. Lists are not counted, nor is what StopReading left in the backend.
type Progress struct {
	// Sent is the newest resource version that the backend sent; Delivered the newest one handed to the
	// client's connection. A version that cannot be compared replaces the one before.
	Sent, Delivered Mark
	// LastSent and LastDelivered are the latest, newest or not: they go backward with a rewind or a lagging
	// backend.
	LastSent, LastDelivered Mark
}

type progress struct {
	mu         sync.Mutex
	byResource map[schema.GroupResource]*Progress
}

func newProgress() *progress {
	return &progress{byResource: map[schema.GroupResource]*Progress{}}
}

func (p *progress) get(gr schema.GroupResource) Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pr := p.byResource[gr]; pr != nil {
		return *pr
	}
	return Progress{}
}

func (p *progress) sent(gr schema.GroupResource, m Mark) {
	p.update(gr, m, func(pr *Progress) (*Mark, *Mark) { return &pr.Sent, &pr.LastSent })
}

func (p *progress) delivered(gr schema.GroupResource, m Mark) {
	p.update(gr, m, func(pr *Progress) (*Mark, *Mark) { return &pr.Delivered, &pr.LastDelivered })
}

func (p *progress) update(gr schema.GroupResource, m Mark, fields func(*Progress) (newest, last *Mark)) {
	if m.ResourceVersion == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pr := p.byResource[gr]
	if pr == nil {
		pr = &Progress{}
		p.byResource[gr] = pr
	}
	newest, last := fields(pr)
	if last.ResourceVersion != m.ResourceVersion {
		*last = m
	}
	if c, err := resourceversion.CompareResourceVersion(m.ResourceVersion, newest.ResourceVersion); err != nil || c > 0 {
		if newest.ResourceVersion != m.ResourceVersion {
			*newest = m
		}
	}
}
