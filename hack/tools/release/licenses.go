// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/licenses"
)

// allowed are the licences that any dependency may have.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// exceptions are further licences of single modules, with the reason.
var exceptions = map[string][]string{
	// Kubernetes links it, too. MPL-2.0 asks for the source of its files, which are published and unchanged.
	"github.com/cyphar/filepath-securejoin": {"MPL-2.0"},
	// Of its documentation, which is in no binary.
	"github.com/opencontainers/go-digest": {"CC-BY-SA-4.0"},
}

// licensesCommand checks the licences of what is linked into binaries, by the texts that a release passes on.
func licensesCommand() *cobra.Command {
	var root string
	cmd := &cobra.Command{
		Use:   "licenses PACKAGE...",
		Short: "Check that every module that is linked into main packages has a licence that is allowed",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, packages []string) error {
			goroot, err := goEnv("GOROOT")
			if err != nil {
				return err
			}
			all := map[string]string{}
			for _, pkg := range packages {
				texts, err := licenses.Collect(root, pkg, architectures[0], goroot)
				if err != nil {
					return err
				}
				for name := range texts {
					all[name] = texts.Expression(name)
				}
			}
			if err := checkLicenses(all); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d modules: %s\n", len(all), strings.Join(allowed, ", "))
			return nil
		},
	}
	cmd.Flags().StringVar(&root, "root", ".", "root of the checkout")
	return cmd
}

// checkLicenses returns an error for each module whose licence is unknown or not allowed.
func checkLicenses(expressions map[string]string) error {
	var problems []error
	for _, module := range slices.Sorted(maps.Keys(expressions)) {
		for id := range strings.SplitSeq(expressions[module], " AND ") {
			if !slices.Contains(allowed, id) && !slices.Contains(exceptions[module], id) {
				problems = append(problems, fmt.Errorf("%s: licence %s is not allowed: replace the module, or add it to the exceptions in hack/tools/release/licenses.go with the reason", module, id))
			}
		}
	}
	return errors.Join(problems...)
}
