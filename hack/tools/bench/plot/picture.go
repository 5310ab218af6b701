// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// colours are those of U0, U1 and P, apart also for those who do not see red and green (Okabe and Ito).
var colours = []color.Color{
	color.RGBA{R: 0x99, G: 0x99, B: 0x99, A: 0xff},
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
}

const (
	barWidth      = vg.Length(14)
	pictureHeight = 3.6 * vg.Inch
	unitWidth     = 1.0 * vg.Inch
)

// bars are one arm's.
type bars struct {
	plotter.XYs
	plotter.YErrors
}

// picture draws medians as bars, with the least and the most of the repetitions.
func picture(b *benchmark, path string) error {
	p := plot.New()
	p.Title.Text = b.name
	p.Y.Label.Text = "median, as a multiple of " + b.arms[0]
	p.Y.Min = 0
	p.Legend.Top = true
	p.Legend.Left = true
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	p.Add(grid)
	for i, arm := range b.arms {
		var values plotter.Values
		var spread bars
		for j, unit := range b.units {
			base, of := median(b.values[b.arms[0]][unit]), b.values[arm][unit]
			m := median(of) / base
			values = append(values, m)
			low, high := m, m
			if len(of) > 0 {
				low, high = slices.Min(of)/base, slices.Max(of)/base
			}
			spread.XYs = append(spread.XYs, plotter.XY{X: float64(j), Y: m})
			spread.YErrors = append(spread.YErrors, struct{ Low, High float64 }{m - low, high - m})
		}
		chart, err := plotter.NewBarChart(values, barWidth)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		chart.Color = colours[max(order(arm), 0)]
		chart.LineStyle.Width = 0
		chart.Offset = barWidth * (vg.Length(i) - vg.Length(len(b.arms)-1)/2)
		errors, err := plotter.NewYErrorBars(spread)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		p.Add(chart, &offset{errors, chart.Offset})
		p.Legend.Add(fmt.Sprintf("%s, n=%d", arm, len(b.values[arm][b.units[0]])), chart)
	}
	p.NominalX(b.units...)
	// Room for the legend.
	p.Y.Max *= 1.35
	return p.Save(unitWidth*vg.Length(max(len(b.units), 4)), pictureHeight, path)
}
