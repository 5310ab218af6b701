// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package provenance writes and reads what a release was made of and how: an in-toto statement with SLSA's provenance.
package provenance

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/sbom"
)

const (
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = "https://fresh-kcm.invalid/build-types/make-release/v1"
	// builder says that whoever holds the key has run `make release`, on a machine of their own.
	builder = "https://fresh-kcm.invalid/builders/make-release"
)

// Release is what a statement is of.
type Release struct {
	Stamp    stamp.Stamp
	Subjects map[string]string // SHA-256 of each file and image, by name
	Binaries map[string]*buildinfo.BuildInfo
}

// Marshal writes the statement. It has no time of the build, so that the same release gives the same bytes.
func Marshal(release Release) ([]byte, error) {
	predicate, err := predicateOf(release)
	if err != nil {
		return nil, err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: predicateType, Predicate: predicate}
	for _, name := range slices.Sorted(maps.Keys(release.Subjects)) {
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{
			Name: name, Digest: map[string]string{string(intoto.AlgorithmSHA256): release.Subjects[name]},
		})
	}
	data, err := protojson.Marshal(statement)
	if err != nil {
		return nil, err
	}
	// protojson puts blanks where it likes, on purpose.
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	if _, err := Parse(out.Bytes()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Parse reads a statement, checks that it and its predicate are valid, and returns the SHA-256 of each subject.
func Parse(data []byte) (map[string]string, error) {
	statement := &intoto.Statement{}
	if err := protojson.Unmarshal(data, statement); err != nil {
		return nil, err
	}
	if err := statement.Validate(); err != nil {
		return nil, err
	}
	if statement.GetPredicateType() != predicateType {
		return nil, fmt.Errorf("predicate type %s, want %s", statement.GetPredicateType(), predicateType)
	}
	inner, err := protojson.Marshal(statement.GetPredicate())
	if err != nil {
		return nil, err
	}
	predicate := &slsa.Provenance{}
	if err := protojson.Unmarshal(inner, predicate); err != nil {
		return nil, err
	}
	if err := predicate.Validate(); err != nil {
		return nil, err
	}
	subjects := map[string]string{}
	for _, subject := range statement.GetSubject() {
		subjects[subject.GetName()] = subject.GetDigest()[string(intoto.AlgorithmSHA256)]
	}
	return subjects, nil
}

func predicateOf(release Release) (*structpb.Struct, error) {
	architectures := slices.Sorted(maps.Keys(release.Binaries))
	var chosen []any
	for _, arch := range architectures {
		chosen = append(chosen, arch)
	}
	external, err := structpb.NewStruct(map[string]any{
		"version": release.Stamp.Version, "revision": release.Stamp.Revision(), "architectures": chosen,
	})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(map[string]any{"sourceDateEpoch": release.Stamp.Date.Unix()})
	if err != nil {
		return nil, err
	}
	dependencies := []*intoto.ResourceDescriptor{{
		Name: "source", Digest: map[string]string{string(intoto.AlgorithmGitCommit): release.Stamp.Commit},
	}}
	seen := map[string]bool{}
	for _, arch := range architectures {
		binary := release.Binaries[arch]
		toolchain := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(binary.GoVersion, "go")}
		for _, module := range append([]*debug.Module{toolchain}, binary.Deps...) {
			if uri := sbom.PackageURL(module); !seen[uri] {
				seen[uri] = true
				dependencies = append(dependencies, &intoto.ResourceDescriptor{Uri: uri, Digest: digestOf(module)})
			}
		}
	}
	data, err := protojson.Marshal(&slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: buildType, ExternalParameters: external, InternalParameters: internal, ResolvedDependencies: dependencies,
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: builder}},
	})
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	return predicate, protojson.Unmarshal(data, predicate)
}

// digestOf is a module's sum in go.sum. A patched module has none: the commit says what it is.
func digestOf(module *debug.Module) map[string]string {
	sum, found := strings.CutPrefix(module.Sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(sum)
	if !found || err != nil {
		return nil
	}
	return map[string]string{string(intoto.AlgorithmDirHash): hex.EncodeToString(raw)}
}
