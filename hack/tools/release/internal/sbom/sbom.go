// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sbom writes and reads the bill of materials of an image: SPDX 2.3, from what the binary itself says that it
// was built of.
package sbom

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
	"github.com/fresh-kcm/fresh-kcm/hack/tools/release/internal/licenses"
)

// Ids of the packages that are no Go modules.
const (
	ImageID  = common.ElementID("Package-image")
	BinaryID = common.ElementID("Package-kube-controller-manager")
	goID     = common.ElementID("Package-go")
	zonesID  = common.ElementID("Package-tzdata")
	rootsID  = common.ElementID("Package-ca-certificates")
)

// Image is what a bill of materials is of.
type Image struct {
	Stamp        stamp.Stamp
	Arch         string
	Binary       *buildinfo.BuildInfo
	BinarySHA256 string
	Digest       string // of the image: sha256:...
	Roots        string // version of the module with the certificate authorities
	Licences     licenses.Texts
}

// Marshal writes the bill of materials. The same image gives the same bytes.
func Marshal(image Image) ([]byte, error) {
	doc := document(image)
	var out bytes.Buffer
	if err := spdxjson.Write(doc, &out, spdxjson.Indent("  "), spdxjson.EscapeHTML(false)); err != nil {
		return nil, err
	}
	if _, err := Parse(out.Bytes()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Parse reads a bill of materials and checks that it is a valid document.
func Parse(data []byte) (*spdx.Document, error) {
	doc, err := spdxjson.Read(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		return nil, err
	}
	if doc.SPDXVersion != spdx.Version || doc.DataLicense != spdx.DataLicense || doc.DocumentNamespace == "" || doc.CreationInfo == nil {
		return nil, errors.New("not an SPDX 2.3 document with all that one must say of itself")
	}
	return doc, nil
}

// Check says what a bill of materials lacks of a binary, as an error.
func Check(doc *spdx.Document, binary *buildinfo.BuildInfo, sha256 string) error {
	versions := map[string]string{}
	for _, p := range doc.Packages {
		versions[p.PackageName] = p.PackageVersion
		if p.PackageSPDXIdentifier == BinaryID && (len(p.PackageChecksums) != 1 || p.PackageChecksums[0].Value != sha256) {
			return fmt.Errorf("is of a kube-controller-manager with the sum %v, not of the one with %s", p.PackageChecksums, sha256)
		}
	}
	for _, module := range binary.Deps {
		if versions[module.Path] != module.Version {
			return fmt.Errorf("has %s %q, the binary was built of %q", module.Path, versions[module.Path], module.Version)
		}
	}
	return nil
}

func document(image Image) *spdx.Document {
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      "kube-controller-manager-" + image.Stamp.Version + "-linux-" + image.Arch,
		DocumentNamespace: "https://fresh-kcm.invalid/spdx/" + url.PathEscape(image.Stamp.Version) + "/linux-" + image.Arch + "/" + strings.TrimPrefix(image.Digest, "sha256:"),
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "The Fresh KCM Authors"}, {CreatorType: "Tool", Creator: "hack/tools/release"}},
			Created:  image.Stamp.Date.UTC().Format(time.RFC3339),
		},
	}
	add := func(p *spdx.Package, of common.ElementID, relation string) {
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(of)), RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)), Relationship: relation,
		})
	}
	container := newPackage(ImageID, image.Stamp.Image, image.Stamp.Version, "Apache-2.0")
	container.PrimaryPackagePurpose = "CONTAINER"
	container.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: strings.TrimPrefix(image.Digest, "sha256:")}}
	add(container, "DOCUMENT", common.TypeRelationshipDescribe)

	binary := newPackage(BinaryID, "kube-controller-manager", image.Stamp.Version, "Apache-2.0")
	binary.PrimaryPackagePurpose = "APPLICATION"
	binary.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: image.BinarySHA256}}
	binary.PackageSourceInfo = "module " + image.Binary.Main.Path + ", commit " + image.Stamp.Revision()
	add(binary, ImageID, common.TypeRelationshipContains)
	for _, module := range image.Binary.Deps {
		add(modulePackage(module, image.Licences), BinaryID, common.TypeRelationshipDependsOn)
	}
	version := strings.TrimPrefix(image.Binary.GoVersion, "go")
	std := newPackage(goID, "stdlib", version, image.Licences.Expression(licenses.GoModule))
	std.PackageExternalReferences = purl("pkg:golang/stdlib@" + version)
	add(std, BinaryID, common.TypeRelationshipDependsOn)

	zones := newPackage(zonesID, "tzdata", image.Binary.GoVersion, licenses.Unknown)
	zones.PackageLicenseComments = "public domain"
	zones.PackageSourceInfo = "lib/time/zoneinfo.zip of the Go distribution"
	add(zones, ImageID, common.TypeRelationshipContains)
	roots := newPackage(rootsID, "ca-certificates", image.Roots, "MPL-2.0")
	roots.PackageSourceInfo = "Mozilla's certificate authorities, from the module golang.org/x/crypto/x509roots/fallback"
	add(roots, ImageID, common.TypeRelationshipContains)
	return doc
}

func newPackage(id common.ElementID, name, version, licence string) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier: id, PackageName: name, PackageVersion: version,
		PackageDownloadLocation: licenses.Unknown, PackageCopyrightText: licenses.Unknown,
		PackageLicenseConcluded: licenses.Unknown, PackageLicenseDeclared: licence,
	}
}

// notInID are the characters that an SPDX id cannot have.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.]+`)

func modulePackage(module *debug.Module, texts licenses.Texts) *spdx.Package {
	id := common.ElementID("Package-module-" + notInID.ReplaceAllString(module.Path+"-"+module.Version, "-"))
	p := newPackage(id, module.Path, module.Version, texts.Expression(module.Path))
	p.PackageExternalReferences = purl(PackageURL(module))
	switch {
	case module.Replace != nil && strings.HasPrefix(module.Replace.Path, "."):
		p.PackageSourceInfo = "the published module with the patches in staging-patches/"
	case module.Replace != nil:
		p.PackageSourceInfo = "replaced by " + module.Replace.Path + " " + module.Replace.Version + " " + module.Replace.Sum
	default:
		p.PackageSourceInfo = "go.sum " + module.Sum
	}
	return p
}

// PackageURL is how other tools name a Go module.
func PackageURL(module *debug.Module) string {
	return "pkg:golang/" + module.Path + "@" + url.PathEscape(module.Version)
}

func purl(locator string) []*spdx.PackageExternalReference {
	return []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: locator}}
}
