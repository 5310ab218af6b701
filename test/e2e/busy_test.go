// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fillWorkers is how many of fillRVs' writes are under way at once.
const fillWorkers = 16

// fillRVs makes so many writes that concern nobody, so that the resource versions go on.
func fillRVs(ctx context.Context, r *run, writes int) {
	ginkgo.GinkgoHelper()
	// Events, of which nobody has a cache.
	events := r.Client.CoreV1().Events(metav1.NamespaceDefault)
	g, ctx := errgroup.WithContext(ctx)
	for worker := range fillWorkers {
		g.Go(func() error {
			for i := worker; i < writes; i += fillWorkers {
				event := &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{GenerateName: "filler-"},
					InvolvedObject: corev1.ObjectReference{Kind: "Filler", Namespace: metav1.NamespaceDefault, Name: fmt.Sprint(i)},
				}
				if _, err := events.Create(ctx, event, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	gomega.Expect(g.Wait()).To(gomega.Succeed())
}

// series adds up the samples of one metric on the KCM's /metrics whose labels contain all of these.
func series(ctx context.Context, r *run, metric string, labels ...string) float64 {
	ginkgo.GinkgoHelper()
	return sumOf(page(ctx, r.KCM, "/metrics"), metric, labels...)
}

// sumOf does so on any page of metrics.
func sumOf(page, metric string, labels ...string) float64 {
	ginkgo.GinkgoHelper()
	var sum float64
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		end := max(strings.LastIndexByte(lines.Text(), ' '), 0)
		name, set, _ := strings.Cut(lines.Text()[:end], "{")
		ok := name == metric
		for _, label := range labels {
			ok = ok && strings.Contains(","+set, ","+label)
		}
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(lines.Text()[end+1:], 64)
		gomega.Expect(err).NotTo(gomega.HaveOccurred(), lines.Text())
		sum += v
	}
	return sum
}

// every does something again and again, counting from 0, until the returned function is called, which fails the
// spec if it could not be done.
func every(ctx context.Context, period time.Duration, do func(ctx context.Context, i int) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for i := 0; ; i++ {
			err := do(ctx, i)
			if ctx.Err() != nil {
				done <- nil
				return
			}
			if err != nil {
				done <- err
				return
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}()
	return func() {
		cancel()
		gomega.Expect(<-done).To(gomega.Succeed())
	}
}
