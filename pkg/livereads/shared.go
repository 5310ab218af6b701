// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package livereads

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// foundFor is for how long an object that a read has found counts as existing, if the cache still lacks it.
	foundFor = time.Minute
	// sharedPatience is how long a caller waits for a read, which may end later, and sharedPause the pause after
	// a read that failed or was late: where the budget is spent, work goes on at nine tenths of its speed.
	sharedPatience = 100 * time.Millisecond
	sharedPause    = time.Second
)

// SharedReads find out whether objects exist that a cache lacks. All callers share the reads, and together wait for them for
// at most 100 ms in a second, however many objects they ask for. All methods may be called concurrently.
type SharedReads[T any] struct {
	reads *Reads[T]

	mu     sync.Mutex
	found  map[string]found[T]
	failed time.Time
}

type found[T any] struct {
	val T
	at  time.Time
}

// NewSharedReads shares these reads, which must not have been used yet. A read that ends after its callers have gone counts, too:
// a caller may ask again only after a long backoff, and could miss the end of the next read as well.
func NewSharedReads[T any](reads *Reads[T]) *SharedReads[T] {
	c := &SharedReads[T]{reads: reads, found: map[string]found[T]{}}
	read := reads.read
	reads.read = func(ctx context.Context, key string) (T, error) {
		at := time.Now()
		val, err := read(ctx, key)
		if err == nil {
			c.note(key, val, at)
		}
		return val, err
	}
	return c
}

// note keeps what a read has found, and forgets what is too old.
func (c *SharedReads[T]) note(key string, val T, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, f := range c.found {
		if time.Since(f.at) >= foundFor {
			delete(c.found, other)
		}
	}
	c.found[key] = found[T]{val, at}
}

// Get returns the object as a read has found it no longer than a minute ago. An error that is no NotFound says nothing of it.
func (c *SharedReads[T]) Get(key string) (val T, err error) {
	c.mu.Lock()
	f, known := c.found[key]
	failed := c.failed
	c.mu.Unlock()
	if known && time.Since(f.at) < foundFor {
		return f.val, nil
	}
	if time.Since(failed) < sharedPause {
		return val, fmt.Errorf("reading %s %s: not sent, because another read has just failed", c.reads.Resource, key)
	}
	ctx, cancel := context.WithTimeout(c.reads.ctx, sharedPatience)
	defer cancel()
	if val, _, err = c.reads.Get(ctx, key, time.Now().Add(-Age)); err != nil && !apierrors.IsNotFound(err) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = time.Now()
	}
	return val, err
}
