// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Variables: what a turn has.
const (
	nodes  = "node"
	pods   = "pod"
	leases = "lease renewal a second"
	writes = "write a second"
	caches = "cache"
	// looks are the nodes that the DaemonSet controller has looked at: all of them for each status that it has written.
	looks = "node that a DaemonSet's sync looks at a second"
)

// Quantities: what a turn costs.
const (
	requests = "requests to the apiserver a second"
	cpu      = "cores of CPU"
	memory   = "MiB of peak RSS"
)

// leastSizes is how many sizes of cluster a fit takes, so that one can be left out and two still show growth.
const leastSizes = 3

// formulas say what each quantity is the sum of, besides a constant.
var formulas = []struct {
	quantity  string
	variables []string
}{
	{requests, []string{leases, writes, caches}},
	{cpu, []string{leases, writes, looks, caches}},
	{memory, []string{nodes, pods, caches}},
}

// fit is a quantity as a sum: of a constant, and of each variable times its coefficient.
type fit struct {
	quantity     string
	variables    []string
	constant     float64
	coefficients []float64
	// fixed are variables that no turn has more of than another: their part is in the constant.
	fixed []string
}

// fitTo fits by least squares. The error says what cannot be told apart.
func fitTo(turns []turn, quantity string, variables []string) (fit, error) {
	f := fit{quantity: quantity}
	for _, v := range variables {
		if slices.ContainsFunc(turns, func(t turn) bool { return t.has[v] != turns[0].has[v] }) {
			f.variables = append(f.variables, v)
		} else {
			f.fixed = append(f.fixed, v)
		}
	}
	columns := len(f.variables) + 1
	if len(turns) < columns {
		return f, fmt.Errorf("%s: %d turns are too few for %d coefficients", quantity, len(turns), columns)
	}
	a, b := mat.NewDense(len(turns), columns, nil), mat.NewVecDense(len(turns), nil)
	for i, t := range turns {
		a.Set(i, 0, 1)
		for j, v := range f.variables {
			a.Set(i, j+1, t.has[v])
		}
		b.SetVec(i, t.cost[quantity])
	}
	// Columns of one size keep the condition number a matter of dependence, not of units.
	scale := make([]float64, columns)
	for j := range columns {
		scale[j] = mat.Norm(a.ColView(j), 2)
		for i := range turns {
			a.Set(i, j, a.At(i, j)/scale[j])
		}
	}
	var x mat.VecDense
	if err := x.SolveVec(a, b); err != nil {
		return f, fmt.Errorf("%s: the results do not tell %v apart: %w", quantity, f.variables, err)
	}
	f.constant = x.AtVec(0) / scale[0]
	for j := range f.variables {
		f.coefficients = append(f.coefficients, x.AtVec(j+1)/scale[j+1])
	}
	return f, nil
}

// at is what the fit says of something.
func (f fit) at(has map[string]float64) float64 {
	sum := f.constant
	for i, v := range f.variables {
		sum += f.coefficients[i] * has[v]
	}
	return sum
}

// errorAt is by what share the fit is wrong, in the median of some turns.
func (f fit) errorAt(turns []turn) float64 {
	var all []float64
	for _, t := range turns {
		all = append(all, math.Abs(f.at(t.has)-t.cost[f.quantity])/t.cost[f.quantity])
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// leftOut is how wrong a fit to all other sizes is at one, or why there is none.
type leftOut struct {
	nodes int
	wrong float64
	err   error
}

// leaveOut checks a formula at each size.
func leaveOut(turns []turn, quantity string, variables []string) (out []leftOut) {
	for _, size := range sizesOf(turns) {
		var others, these []turn
		for _, t := range turns {
			if t.nodes == size {
				these = append(these, t)
			} else {
				others = append(others, t)
			}
		}
		checked := leftOut{nodes: size}
		var f fit
		if f, checked.err = fitTo(others, quantity, variables); checked.err == nil {
			checked.wrong = f.errorAt(these)
		}
		out = append(out, checked)
	}
	return out
}
