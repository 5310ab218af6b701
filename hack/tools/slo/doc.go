// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command slo evaluates the SLOs of docs/slos.md for one run of one kube-controller-manager, without a Prometheus server:
// it gives the kept scrapes of /metrics to Prometheus' own engine and has it evaluate the recording rules that operators use.
//
//	slo -rules build/monitoring/slos.yaml -scrapes DIR [-json]
//
// It prints a line for each SLO, with its value, its threshold, and pass, fail or no data. The rules are evaluated at the time
// of each scrape, and what is printed is what held at the last one. It exits with 1 if an SLO is missed, with 2 if the
// rules or the scrapes cannot be read, and with 0 otherwise, also if there is no data: an arm without these
// metrics has none.
//
// # The folder of scrapes
//
//	1763803572000.prom   what /metrics answered at that time, in milliseconds since 1970, in the text format
//	1763803577000.prom
//	judge.prom           optional: what the judge of the run found, in the text format
//
// What it takes them for:
//
//   - All scrapes are of one target: they get the labels instance="kcm" and job="kube-controller-manager", and the time in
//     their names, whatever times they have inside.
//   - An empty file is a scrape that was not answered: as in Prometheus, the target's series end there.
//   - Scrapes are 60 s apart at most. 5 s suits runs of minutes: a run of fewer than 100 scrapes has to keep its
//     thresholds at each of them, since the SLOs are about 99 % of the time.
//   - judge.prom has benchmark_wrong_actions{kind="..."}, a number for each kind of wrong action that was looked for, also
//     if there was none. It counts as of the last scrape. Without that file wrong_actions has no data.
//   - Other files are ignored.
package main
