// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
)

// What the rules record for each SLO.
const (
	recordThreshold = "fresh_kcm_slo:threshold"
	recordValue     = "fresh_kcm_slo:value"
	recordMet       = "fresh_kcm_slo:met"
	sloLabel        = "slo"
)

// tellEvery is how often an evaluation says how far it is.
const tellEvery = 5 * time.Second

// judged are the rules for what only the judge of a run knows.
//
//go:embed judged.yaml
var judged []byte

// outcome of an SLO.
type outcome string

const (
	pass   outcome = "pass"
	fail   outcome = "fail"
	noData outcome = "no data"
)

// result is what became of one SLO. Value is nil without data.
type result struct {
	SLO       string   `json:"slo"`
	Value     *float64 `json:"value,omitempty"`
	Threshold float64  `json:"threshold"`
	Outcome   outcome  `json:"outcome"`
}

// evaluate has Prometheus' engine evaluate the rules at the time of each scrape, and returns what each SLO came to at the
// last one, in the order of the rules. What takes long is told to progress.
func evaluate(ctx context.Context, ruleFile string, scrapes []scrape, progress io.Writer) (_ []result, err error) {
	dir, err := os.MkdirTemp("", "slo-")
	if err != nil {
		return nil, fmt.Errorf("evaluating SLOs: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	judgedFile := filepath.Join(dir, "judged.yaml")
	if err := os.WriteFile(judgedFile, judged, 0o600); err != nil {
		return nil, fmt.Errorf("evaluating SLOs: %w", err)
	}
	db, err := open(filepath.Join(dir, "tsdb"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})})
	query := rules.EngineQueryFunc(engine, db)
	groups, err := load(ctx, db, query, ruleFile, judgedFile)
	if err != nil {
		return nil, err
	}
	before := map[string]labels.Labels{}
	told := time.Now()
	for i, s := range scrapes {
		if time.Since(told) >= tellEvery {
			told = time.Now()
			fmt.Fprintf(progress, "slo: %d of %d scrapes\n", i, len(scrapes))
		}
		if before, err = add(ctx, db, s, before); err != nil {
			return nil, err
		}
		for _, g := range groups {
			g.Eval(ctx, time.UnixMilli(s.millis))
			for _, rule := range g.Rules() {
				if err := rule.LastError(); err != nil {
					return nil, fmt.Errorf("evaluating %s %s: %w", rule.Name(), rule.Labels(), err)
				}
			}
		}
	}
	return collect(ctx, query, groups, time.UnixMilli(scrapes[len(scrapes)-1].millis))
}

// open makes an empty database, which keeps what it is given in memory.
func open(dir string) (*tsdb.DB, error) {
	options := tsdb.DefaultOptions()
	options.WALSegmentSize = -1 // no write-ahead log
	options.MinBlockDuration = (7 * 24 * time.Hour).Milliseconds()
	options.MaxBlockDuration = options.MinBlockDuration
	options.RetentionDuration = 0
	db, err := tsdb.Open(dir, nil, nil, options, nil)
	if err != nil {
		return nil, fmt.Errorf("evaluating SLOs: %w", err)
	}
	return db, nil
}

// load reads groups of rules, in the order of the files.
func load(ctx context.Context, db *tsdb.DB, query rules.QueryFunc, files ...string) ([]*rules.Group, error) {
	manager := rules.NewManager(&rules.ManagerOptions{
		Context: ctx, QueryFunc: query, Appendable: db, Queryable: db, Parser: parser.NewParser(parser.Options{}),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	loaded, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, files...)
	if len(errs) > 0 {
		return nil, fmt.Errorf("reading rules: %w", errors.Join(errs...))
	}
	var groups []*rules.Group
	for _, g := range loaded {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b *rules.Group) int {
		return cmp.Or(cmp.Compare(slices.Index(files, a.File()), slices.Index(files, b.File())), strings.Compare(a.Name(), b.Name()))
	})
	return groups, nil
}

// add writes a scrape as Prometheus would: series that it lacks, of those before, end. It returns those of this scrape.
func add(ctx context.Context, db *tsdb.DB, s scrape, before map[string]labels.Labels) (map[string]labels.Labels, error) {
	appender := db.Appender(ctx)
	now := map[string]labels.Labels{}
	for _, one := range s.samples {
		now[one.labels.String()] = one.labels
		if _, err := appender.Append(0, one.labels, s.millis, one.value); err != nil {
			return nil, errors.Join(fmt.Errorf("adding %s of %d: %w", one.labels, s.millis, err), appender.Rollback())
		}
	}
	for key, l := range before {
		if _, there := now[key]; there {
			continue
		}
		if _, err := appender.Append(0, l, s.millis, math.Float64frombits(value.StaleNaN)); err != nil {
			return nil, errors.Join(fmt.Errorf("ending %s at %d: %w", l, s.millis, err), appender.Rollback())
		}
	}
	if err := appender.Commit(); err != nil {
		return nil, fmt.Errorf("adding the scrape of %d: %w", s.millis, err)
	}
	return now, nil
}

// collect returns what the rules have recorded at a time. An SLO is there if there is a rule for its threshold.
func collect(ctx context.Context, query rules.QueryFunc, groups []*rules.Group, at time.Time) ([]result, error) {
	recorded := map[string]map[string]float64{}
	for _, record := range []string{recordThreshold, recordValue, recordMet} {
		found, err := query(ctx, record, at)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", record, err)
		}
		recorded[record] = map[string]float64{}
		for _, s := range found {
			recorded[record][s.Metric.Get(sloLabel)] = s.F
		}
	}
	var results []result
	for _, g := range groups {
		for _, rule := range g.Rules() {
			if rule.Name() != recordThreshold {
				continue
			}
			slo := rule.Labels().Get(sloLabel)
			r := result{SLO: slo, Threshold: recorded[recordThreshold][slo], Outcome: noData}
			if v, ok := recorded[recordValue][slo]; ok {
				r.Value = &v
			}
			if met, ok := recorded[recordMet][slo]; ok {
				r.Outcome = fail
				if met == 1 {
					r.Outcome = pass
				}
			}
			results = append(results, r)
		}
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("the rules have no SLO: none records %s", recordThreshold)
	}
	return results, nil
}
