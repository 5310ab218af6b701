// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package licenses

import (
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Unknown is what SPDX calls a licence that is not known.
const Unknown = "NOASSERTION"

var (
	// isLicence says whether a text is a licence, and not one that goes with it.
	isLicence = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)`)
	// enough is how much of a text, in percent, has to be a known licence: the rest is names and years.
	enough = 75.0
)

// Expression is the SPDX expression of the licences that a module's texts are, or Unknown if a text is of none known.
func (t Texts) Expression(module string) string {
	ids := map[string]bool{}
	for name, text := range t[module] {
		if !isLicence.MatchString(path.Base(name)) {
			continue
		}
		found := licensecheck.Scan(text)
		if found.Percent < enough {
			return Unknown
		}
		for _, match := range found.Match {
			if !match.IsURL {
				ids[match.ID] = true
			}
		}
	}
	if len(ids) == 0 {
		return Unknown
	}
	return strings.Join(slices.Sorted(maps.Keys(ids)), " AND ")
}
