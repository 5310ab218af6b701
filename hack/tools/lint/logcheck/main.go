// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command logcheck is Kubernetes' logcheck as a tool for go vet, which keeps what it found of a package that has not changed.
package main

import (
	"fmt"
	"os"

	"golang.org/x/tools/go/analysis/unitchecker"
	"sigs.k8s.io/logtools/logcheck/pkg"
)

// exceptions are in logcheck's format. They are no file, because go vet would not look whether it has changed.
const exceptions = `
# Ends the process as upstream's clients do, by klog.Fatal.
-contextual,-structured .*/pkg/transport/client\.go
`

func main() {
	analyzer, _ := pkg.Analyser()
	if err := except(analyzer.Flags.Set); err != nil {
		fmt.Fprintln(os.Stderr, "logcheck:", err)
		os.Exit(1)
	}
	unitchecker.Main(analyzer)
}

// except has the analyzer read the exceptions.
func except(set func(flag, value string) error) error {
	file, err := os.CreateTemp("", "logcheck")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(exceptions); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return set("config", file.Name())
}
