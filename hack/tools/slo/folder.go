// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

const (
	scrapeSuffix = ".prom"
	judgeFile    = "judge.prom"
)

// sample is one line of a scrape.
type sample struct {
	labels labels.Labels
	value  float64
}

// scrape is what one file has.
type scrape struct {
	millis  int64
	samples []sample
}

// readFolder reads the scrapes of a folder in the order of their times. What the judge found is added to the last one.
func readFolder(dir string) ([]scrape, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading scrapes: %w", err)
	}
	var scrapes []scrape
	var judged []sample
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), scrapeSuffix)
		millis, err := strconv.ParseInt(name, 10, 64)
		if !ok || (err != nil && entry.Name() != judgeFile) {
			continue
		}
		samples, err := readScrape(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		if entry.Name() == judgeFile {
			judged = samples
			continue
		}
		scrapes = append(scrapes, scrape{millis, samples})
	}
	if len(scrapes) == 0 {
		return nil, fmt.Errorf("reading scrapes: %s has no file UNIX_MILLIS%s", dir, scrapeSuffix)
	}
	slices.SortFunc(scrapes, func(a, b scrape) int { return cmp.Compare(a.millis, b.millis) })
	last := &scrapes[len(scrapes)-1]
	last.samples = append(last.samples, judged...)
	return scrapes, nil
}

// readScrape reads a file in the text format. Each sample gets the labels that Prometheus would give it.
func readScrape(path string) ([]sample, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading a scrape: %w", err)
	}
	var samples []sample
	for p := textparse.NewPromParser(text, labels.NewSymbolTable(), false); ; {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the scrape %s: %w", path, err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var l labels.Labels
		p.Labels(&l)
		_, _, value := p.Series()
		l = labels.NewBuilder(l).Set("instance", "kcm").Set("job", "kube-controller-manager").Labels()
		samples = append(samples, sample{l, value})
	}
}
