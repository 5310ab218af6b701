// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package build says what a build of this checkout is called.
package build

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

//go:embed IMAGE
var repository string

// Version is the version that a build carries, such as v1.37.0+fresh.1.
func Version() string { return strings.TrimSpace(version) }

// Image is the reference of the container image that `make image` makes. Its registry does not exist, by RFC 6761:
// a machine that lacks the image never gets another one from the network.
func Image() string {
	return strings.TrimSpace(repository) + ":" + strings.ReplaceAll(Version(), "+", "_")
}
