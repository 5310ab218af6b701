// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"bytes"
	"debug/buildinfo"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/licenses"
)

const mit = `MIT License

Copyright (c) 2026 Somebody

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

func example() Image {
	return Image{
		Stamp:        stamp.Stamp{Version: "v1.37.0+fresh.1", Image: "fresh-kcm.invalid/kcm:v1.37.0_fresh.1", Commit: "c0ffee", TreeState: "clean", Date: time.Unix(1_000_000_000, 0)},
		Arch:         "amd64",
		BinarySHA256: strings.Repeat("ab", 32),
		Digest:       "sha256:" + strings.Repeat("cd", 32),
		Roots:        "v0.0.1",
		Licences: licenses.Texts{
			licenses.GoModule:    {"LICENSE": []byte(mit)},
			"example.org/a":      {"LICENSE": []byte(mit), "NOTICE": []byte("by somebody")},
			"k8s.io/kubernetes":  {"LICENSE": []byte("All rights reserved.")},
			"example.org/forked": {"NOTICE": []byte("by somebody")},
		},
		Binary: &buildinfo.BuildInfo{
			GoVersion: "go1.26.8",
			Main:      debug.Module{Path: "github.com/fresh-kcm/fresh-kcm"},
			Deps: []*debug.Module{
				{Path: "example.org/a", Version: "v1.0.0", Sum: "h1:abc="},
				{Path: "example.org/forked", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v2.0.0", Sum: "h1:def="}},
				{Path: "k8s.io/kubernetes", Version: "v1.37.0", Replace: &debug.Module{Path: "./_output/staging/kubernetes", Version: "(devel)"}},
			},
		},
	}
}

func TestMarshal(t *testing.T) {
	image := example()
	data, err := Marshal(image)
	require.NoError(t, err)
	again, err := Marshal(example())
	require.NoError(t, err)
	assert.True(t, bytes.Equal(data, again), "two documents of one image differ")

	doc, err := Parse(data)
	require.NoError(t, err)
	require.NoError(t, Check(doc, image.Binary, image.BinarySHA256))
	assert.Equal(t, "2001-09-09T01:46:40Z", doc.CreationInfo.Created)
	got := map[string][]string{}
	for _, p := range doc.Packages {
		got[p.PackageName] = []string{p.PackageVersion, p.PackageLicenseDeclared, p.PackageSourceInfo}
	}
	assert.Equal(t, []string{"v1.0.0", "MIT", "go.sum h1:abc="}, got["example.org/a"])
	assert.Equal(t, []string{"v1.0.0", "NOASSERTION", "replaced by example.org/fork v2.0.0 h1:def="}, got["example.org/forked"])
	assert.Equal(t, []string{"v1.37.0", "NOASSERTION", "the published module with the patches in staging-patches/"}, got["k8s.io/kubernetes"])
	assert.Equal(t, []string{"1.26.8", "MIT", ""}, got["stdlib"])
	assert.Len(t, doc.Relationships, len(doc.Packages), "every package belongs to the image")
}

func TestCheck(t *testing.T) {
	image := example()
	doc := document(image)
	assert.ErrorContains(t, Check(doc, image.Binary, "another"), "not of the one with another")
	image.Binary.Deps = append(image.Binary.Deps, &debug.Module{Path: "example.org/b", Version: "v0.1.0"})
	assert.ErrorContains(t, Check(doc, image.Binary, image.BinarySHA256), `has example.org/b "", the binary was built of "v0.1.0"`)
}

func TestParseRefuses(t *testing.T) {
	for name, data := range map[string]string{
		"no JSON":            "SPDX",
		"another version":    `{"spdxVersion": "SPDX-9.9"}`,
		"says nothing":       `{"spdxVersion": "SPDX-2.3"}`,
		"relation to nobody": `{"spdxVersion": "SPDX-2.3", "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relatedSpdxElement": "SPDXRef-x", "relationshipType": "DESCRIBES"}]}`,
	} {
		_, err := Parse([]byte(data))
		assert.Error(t, err, name)
	}
}
