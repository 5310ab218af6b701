// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// writeTable prints a line for each SLO.
func writeTable(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "SLO\tVALUE\tTHRESHOLD\tRESULT")
	for _, r := range results {
		value := "-"
		if r.Value != nil {
			value = strconv.FormatFloat(*r.Value, 'g', 4, 64)
		}
		fmt.Fprintf(w, "%s\t%s\t%g\t%s\n", r.SLO, value, r.Threshold, r.Outcome)
	}
	return w.Flush()
}

// writeJSON prints the same for programs.
func writeJSON(out io.Writer, results []result) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(results)
}
