// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// arms are those of the benchmarks, the unprotected ones first.
var arms = []string{"U0", "U1", "P"}

const (
	// podsPerNode and writeRate are assumed of a cluster that was not measured: a tenth of the 110 pods that a kubelet
	// takes by default, and all writes that kube-controller-manager may make at the benchmarks' rate limit. statusRate of them are
	// the status of a DaemonSet on all nodes.
	podsPerNode = 11
	writeRate   = 100
	statusRate  = 3
)

// extended are the sizes that the model is extended to.
var extended = []int{5000, 15000}

// page writes the model as Markdown.
func page(all []turn) (string, error) {
	var out strings.Builder
	fmt.Fprintf(&out, "Fitted by least squares to %d turns on clusters of %s nodes.\n", len(all), join(sizesOf(all)))
	for _, formula := range formulas {
		fmt.Fprintf(&out, "\n**%s**\n\n| | fit | wrong by, at the size left out |", strings.ToUpper(formula.quantity[:1])+formula.quantity[1:])
		for _, size := range extended {
			fmt.Fprintf(&out, " %d nodes |", size)
		}
		fmt.Fprintf(&out, "\n|---|---|---%s|\n", strings.Repeat("|---", len(extended)))
		for _, arm := range arms {
			var turns []turn
			for _, t := range all {
				if t.arm == arm {
					turns = append(turns, t)
				}
			}
			if n := len(sizesOf(turns)); n < leastSizes {
				fmt.Fprintf(&out, "| %s | results of %d sizes only | |%s\n", arm, n, strings.Repeat(" |", len(extended)))
				continue
			}
			f, err := fitTo(turns, formula.quantity, formula.variables)
			if err != nil {
				return "", fmt.Errorf("arm %s: %w", arm, err)
			}
			var wrong []string
			for _, l := range leaveOut(turns, formula.quantity, formula.variables) {
				if l.err != nil {
					wrong = append(wrong, fmt.Sprintf("no fit without %d", l.nodes))
				} else {
					wrong = append(wrong, fmt.Sprintf("%.0f %% at %d", 100*l.wrong, l.nodes))
				}
			}
			fmt.Fprintf(&out, "| %s | %s | %s |", arm, f, strings.Join(wrong, ", "))
			for _, size := range extended {
				fmt.Fprintf(&out, " %s |", number(f.at(assumed(size, turns))))
			}
			fmt.Fprintln(&out)
		}
	}
	fmt.Fprintf(&out, `
The last columns assume upstream's leases, %d pods a node, %d writes a second, of which %d are the status of a DaemonSet on all nodes, as many caches as were measured, an apiserver and an
etcd that keep up, and that what was linear up to %d nodes stays so.
`, podsPerNode, writeRate, statusRate, slices.Max(sizesOf(all)))
	return out.String(), nil
}

// assumed is a cluster that was not measured.
func assumed(size int, turns []turn) map[string]float64 {
	most := 0.0
	for _, t := range turns {
		most = max(most, t.has[caches])
	}
	return map[string]float64{
		nodes: float64(size), pods: float64(size * podsPerNode), leases: renewals(size, upstreamLease), writes: writeRate, caches: most,
		looks: float64(size * statusRate),
	}
}

// String is the sum in words.
func (f fit) String() string {
	var out strings.Builder
	out.WriteString(number(f.constant))
	for i, v := range f.variables {
		sign, c := "+", f.coefficients[i]
		if c < 0 {
			sign, c = "-", -c
		}
		fmt.Fprintf(&out, " %s %s for each %s", sign, number(c), v)
	}
	if len(f.fixed) > 0 {
		fmt.Fprintf(&out, "; the same number in all turns, so in the constant: %s", strings.Join(f.fixed, ", "))
	}
	return out.String()
}

// number shows three significant digits, or the whole number if it has more.
func number(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func join(sizes []int) string {
	var out []string
	for _, size := range sizes {
		out = append(out, fmt.Sprint(size))
	}
	return strings.Join(out[:len(out)-1], ", ") + " and " + out[len(out)-1]
}
