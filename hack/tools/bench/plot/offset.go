// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// offset draws error bars beside their place, as bar charts can.
type offset struct {
	*plotter.YErrorBars
	by vg.Length
}

// Plot implements plot.Plotter.
func (o *offset) Plot(c draw.Canvas, p *plot.Plot) {
	c.Min.X += o.by
	c.Max.X += o.by
	o.YErrorBars.Plot(c, p)
}
