// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"embed"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

//go:embed fixtures
var fixtureFiles embed.FS

const unwritableFile = "fixtures/unwritable.yaml"

// fixture is a minimal valid object of one type, and how to write it.
type fixture struct {
	Object map[string]any `json:"object"`
	// Subresources are merge patches, each of which changes the object.
	Subresources map[string]map[string]any `json:"subresources"`
	// Without names the subresources that are not written, and why.
	Without map[string]string `json:"without"`
	// WithoutBookmarks says why watches of the type get no bookmarks with time.
	WithoutBookmarks string `json:"withoutBookmarks"`
}

// loadFixtures returns the fixtures by kind, and the reasons for those types that have none, by "group/version
// resource".
func loadFixtures(t *testing.T) (map[schema.GroupVersionKind]fixture, map[string]string) {
	t.Helper()
	words := strings.NewReplacer(certificateWords(t)...)
	fixtures := map[schema.GroupVersionKind]fixture{}
	files, err := fs.Glob(fixtureFiles, "fixtures/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		raw, err := fixtureFiles.ReadFile(file)
		require.NoError(t, err)
		if file == unwritableFile {
			continue
		}
		for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
			var f fixture
			require.NoError(t, yaml.UnmarshalStrict([]byte(words.Replace(string(document))), &f), file)
			kind := (&unstructured.Unstructured{Object: f.Object}).GroupVersionKind()
			require.NotContains(t, fixtures, kind, file)
			fixtures[kind] = f
		}
	}
	raw, err := fixtureFiles.ReadFile(unwritableFile)
	require.NoError(t, err)
	reasons := map[string]string{}
	require.NoError(t, yaml.Unmarshal(raw, &reasons))
	return fixtures, reasons
}

// certificateWords makes what the fixtures cannot hold, as pairs of a word and what it stands for.
func certificateWords(t *testing.T) []string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	base64Of := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	quoted, err := json.Marshal(text("CERTIFICATE", certificate))
	require.NoError(t, err)
	return []string{
		"REQUEST_PEM", base64Of(text("CERTIFICATE REQUEST", request)),
		"REQUEST_DER", base64Of(string(request)),
		"CERTIFICATE_PEM", base64Of(text("CERTIFICATE", certificate)),
		"CERTIFICATE_TEXT", string(quoted),
	}
}

// parse reads one manifest.
func parse(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(manifest), &o.Object))
	return o
}
