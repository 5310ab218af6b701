// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command model fits how the cost of kube-controller-manager grows to kept results of benchmarks, and writes it as Markdown:
//
//	model FOLDER...
//
// For each arm it fits requests and CPU time a second and peak memory, by least squares, as sums of what each node, pod,
// write and cache costs. It checks each fit by leaving one size of cluster out, and extends it to larger clusters. It takes results
// of three sizes at least. Benchmarks with a fault, and those in which nodes or the leader die, are left out: their cost is not
// a sum of that kind.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: model FOLDER...: folders of results")
		os.Exit(2)
	}
	page, err := model(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(1)
	}
	fmt.Print(page)
}

func model(folders []string) (string, error) {
	var all []turn
	for _, folder := range folders {
		turns, err := read(folder)
		if err != nil {
			return "", err
		}
		all = append(all, turns...)
	}
	sizes := sizesOf(all)
	if len(sizes) < leastSizes {
		return "", fmt.Errorf("results of %d sizes of cluster are needed, there are those of %d: %v nodes", leastSizes, len(sizes), sizes)
	}
	return page(all)
}
