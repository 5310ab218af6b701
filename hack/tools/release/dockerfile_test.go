// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/image"
)

// An engine makes of build/Dockerfile what `make image` makes: the same settings, of the same files.
func TestDockerfile(t *testing.T) {
	info := stamp.Stamp{Version: "v1.37.0+fresh.1", Commit: "c0ffee", TreeState: "clean", Date: time.Unix(1_000_000_000, 0).UTC()}
	file, err := os.ReadFile("../../../build/Dockerfile")
	require.NoError(t, err)
	for _, arg := range buildArgs(info, "1.26.8") {
		name, value, _ := strings.Cut(arg, "=")
		require.Contains(t, string(file), "\nARG "+name, "an argument of make image-args")
		file = bytes.ReplaceAll(file, []byte("${"+name+"}"), []byte(value))
	}
	parsed, err := parser.Parse(bytes.NewReader(file))
	require.NoError(t, err)
	assert.Empty(t, parsed.Warnings)

	var got v1.Config
	var stages, made, copied []string
	for _, node := range parsed.AST.Children {
		words := wordsOf(node)
		switch name := strings.ToLower(node.Value); name {
		case "from":
			got = v1.Config{}
			stages = append(stages, words[0])
		case "arg":
		case "run":
			made = append(made, words...)
		case "copy":
			copied = append(node.Flags, words...)
		case "workdir":
			got.WorkingDir = words[0]
		case "entrypoint":
			got.Entrypoint = words
		case "user":
			got.User = words[0]
		case "env":
			got.Env = append(got.Env, words[0]+"="+words[1])
		case "label":
			got.Labels = map[string]string{}
			for ; len(words) >= 3; words = words[3:] { // name, value, the sign between them
				got.Labels[words[0]] = strings.Trim(words[1], `"`)
			}
		default:
			t.Errorf("%s is not compared with make image", name)
		}
	}
	assert.Equal(t, image.Config(info), got)
	assert.Equal(t, []string{"golang:1.26.8", "scratch"}, stages)
	assert.Equal(t, []string{"--from=build", "/image/", "/"}, copied)
	assert.Equal(t, []string{"make image-files ARCH=${TARGETARCH} && mv _output/image/linux-${TARGETARCH} /image"}, made)
}

func wordsOf(node *parser.Node) []string {
	var words []string
	for word := node.Next; word != nil; word = word.Next {
		words = append(words, word.Value)
	}
	return words
}
