// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/licenses"
)

func TestCheckLicenses(t *testing.T) {
	const excepted = "github.com/cyphar/filepath-securejoin"
	for name, test := range map[string]struct {
		module, expression, refused string
	}{
		"allowed":                  {"example.org/a", "MIT", ""},
		"two allowed":              {"example.org/a", "Apache-2.0 AND MIT", ""},
		"copyleft":                 {"example.org/a", "GPL-3.0", "GPL-3.0"},
		"one of two":               {"example.org/a", "Apache-2.0 AND AGPL-3.0", "AGPL-3.0"},
		"of no kind known":         {"example.org/a", licenses.Unknown, licenses.Unknown},
		"exception":                {excepted, "BSD-3-Clause AND MPL-2.0", ""},
		"exception of another":     {"example.org/a", "MPL-2.0", "MPL-2.0"},
		"more than the exception":  {excepted, "BSD-3-Clause AND GPL-2.0", "GPL-2.0"},
		"case matters as in SPDX":  {"example.org/a", "mit", "mit"},
		"a prefix is not the same": {"example.org/a", "MIT-0", "MIT-0"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkLicenses(map[string]string{test.module: test.expression})
			if test.refused == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.module+": licence "+test.refused+" is not allowed")
		})
	}
}
