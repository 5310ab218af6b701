// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

const (
	sentencesFile = "sentences.yaml"
	folder        = "test/conformance"
	// scenarioFolder is where a marker may be above a spec, or above a scenario, which has its number within as many lines.
	scenarioFolder, scenarioLines = "test/e2e", 4
)

// sentence is what a document promises, in short.
type sentence struct {
	Says string `json:"says"`
	// Otherwise is what 1.37 or this project does in its place, NotTested why no test shows it.
	Otherwise string `json:"otherwise,omitempty"`
	NotTested string `json:"notTested,omitempty"`
}

// document is one of the reference documents, with what can be tested of it.
type document struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Sections []struct {
		Name      string     `json:"name"`
		Sentences []sentence `json:"sentences"`
	} `json:"sections"`
}

// shownBy is a test, a subtest, a spec or a scenario that a marker is above.
type shownBy struct{ name, file string }

func (s shownBy) String() string { return fmt.Sprintf("[%s](../%s)", s.name, s.file) }

var (
	markerLine   = regexp.MustCompile(`^\s*//conformance:(\S+) (.+)$`)
	testLine     = regexp.MustCompile(`^func (Test\w+)\(`)
	subtestLine  = regexp.MustCompile(`^\s*t\.Run\("([^"]+)"`)
	scenarioLine = regexp.MustCompile(`\bnumber: (\d+)`)
	specLine     = regexp.MustCompile(`\bginkgo\.It\("([^"]+)"`)
	commentLine  = regexp.MustCompile(`^\s*//`)
)

// markersOf returns what each marker of a file is above, by the marker's text, and the tests that the file declares.
func markersOf(file, source string) (shown map[string][]shownBy, declared []string, err error) {
	shown = map[string][]shownBy{}
	lines := strings.Split(source, "\n")
	test := ""
	var waiting []string
	for i, line := range lines {
		if m := markerLine.FindStringSubmatch(line); m != nil {
			waiting = append(waiting, m[1]+" "+m[2])
			continue
		}
		if commentLine.MatchString(line) && len(waiting) > 0 {
			continue
		}
		name := ""
		if m := testLine.FindStringSubmatch(line); m != nil {
			test, name = m[1], m[1]
			declared = append(declared, test)
		} else if m := subtestLine.FindStringSubmatch(line); m != nil {
			name = test + "/" + m[1]
		} else if m := scenarioLine.FindStringSubmatch(strings.Join(lines[i:min(i+scenarioLines, len(lines))], "\n")); m != nil && filepath.Dir(file) == scenarioFolder {
			name = "scenario " + m[1]
		} else if m := specLine.FindStringSubmatch(line); m != nil && filepath.Dir(file) == scenarioFolder {
			name = m[1]
		}
		if name == "" && len(waiting) > 0 {
			return nil, nil, fmt.Errorf("%s:%d: the marker %q is above no test, subtest, spec or scenario", file, i+1, waiting[0])
		}
		for _, marker := range waiting {
			shown[marker] = append(shown[marker], shownBy{name, file})
		}
		waiting = nil
	}
	return shown, declared, nil
}

// markers collects those of the whole repository, and the tests of this folder that have none.
func markers(t *testing.T) (shown map[string][]shownBy, unmarked []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	shown = map[string][]shownBy{}
	marked := sets.New[string]()
	var here []string
	for _, top := range []string{"cmd", "pkg", "test"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			file, err := filepath.Rel(root, path)
			if err != nil || !bytes.Contains(source, []byte("//conformance:")) && filepath.Dir(file) != folder {
				return err
			}
			of, declared, err := markersOf(file, string(source))
			for marker, by := range of {
				shown[marker] = append(shown[marker], by...)
				for _, s := range by {
					test, _, _ := strings.Cut(s.name, "/")
					marked.Insert(test)
				}
			}
			if filepath.Dir(file) == folder {
				here = append(here, declared...)
			}
			return err
		}))
	}
	for _, test := range here {
		if !marked.Has(test) && test != "TestMain" && test != "TestSentences" && test != "TestMarkers" {
			unmarked = append(unmarked, test)
		}
	}
	return shown, unmarked
}

// TestSentences proves that the tables of docs/conformance.md are of sentences.yaml and of the markers above tests,
// subtests and scenarios, and that the two agree: each sentence has a test or says why not, each marker is a
// sentence, and each test of this folder has a marker. hack/update-conformance.sh writes the tables.
func TestSentences(t *testing.T) {
	raw, err := os.ReadFile(sentencesFile)
	require.NoError(t, err)
	var documents []document
	require.NoError(t, yaml.UnmarshalStrict(raw, &documents))
	require.NotEmpty(t, documents)
	shown, unmarked := markers(t)
	var problems []string
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for _, test := range unmarked {
		complain("%s of %s has no marker", test, folder)
	}
	said := sets.New[string]()
	var out strings.Builder
	for _, d := range documents {
		fmt.Fprintf(&out, "## %s\n\n| Section | What it promises | Shown by |\n|---|---|---|\n", d.Title)
		for _, section := range d.Sections {
			for _, s := range section.Sentences {
				marker := d.Name + " " + section.Name + ": " + s.Says
				if said.Has(marker) {
					complain("%s says twice: %s", sentencesFile, marker)
				}
				said.Insert(marker)
				var by []string
				for _, test := range shown[marker] {
					by = append(by, test.String())
				}
				slices.Sort(by)
				by = slices.Compact(by)
				if (len(by) == 0) == (s.NotTested == "") {
					complain("%s: %q has to have either a marker above a test or notTested", sentencesFile, marker)
				}
				cell := strings.Join(by, ", ")
				if s.NotTested != "" {
					cell = "not tested: " + s.NotTested
				}
				says := s.Says
				if s.Otherwise != "" {
					says += " – but: " + s.Otherwise
				}
				fmt.Fprintf(&out, "| %s | %s | %s |\n", section.Name, says, cell)
			}
		}
		out.WriteString("\n")
	}
	for marker, by := range shown {
		if !said.Has(marker) {
			complain("%s has no sentence %q, which is above %v", sentencesFile, marker, by)
		}
	}
	slices.Sort(problems)
	require.Empty(t, problems)
	generated(t, "sentences", strings.TrimSpace(out.String()))
}

// TestMarkers: a marker names what is right below it, or nothing.
func TestMarkers(t *testing.T) {
	of := func(file, source string) (map[string][]shownBy, error) {
		shown, _, err := markersOf(file, source)
		return shown, err
	}
	const here = folder + "/a_test.go"
	shown, err := of(here, "// TestA does.\n//\n//conformance:doc Section: one\n//conformance:doc Section: two\nfunc TestA(t *testing.T) {\n\t//conformance:doc Section: two\n\t// It is this.\n\tt.Run(\"sub test\", nil)\n}\n")
	require.NoError(t, err)
	require.Equal(t, map[string][]shownBy{
		"doc Section: one": {{"TestA", here}}, "doc Section: two": {{"TestA", here}, {"TestA/sub test", here}},
	}, shown)
	const scenarios = scenarioFolder + "/a_test.go"
	shown, err = of(scenarios, "//conformance:doc Section: one\nvar _ = describe(scenario{\n\tnumber: 24, title: \"x\",\n})\n")
	require.NoError(t, err)
	require.Equal(t, map[string][]shownBy{"doc Section: one": {{"scenario 24", scenarios}}}, shown)
	shown, err = of(scenarios, "\t//conformance:doc Section: one\n\tginkgo.It(\"does it\", func() {\n")
	require.NoError(t, err)
	require.Equal(t, map[string][]shownBy{"doc Section: one": {{"does it", scenarios}}}, shown)
	for _, source := range []string{
		"//conformance:doc Section: one\n\nfunc TestA(t *testing.T) {}\n",
		"func TestA(t *testing.T) {\n\t//conformance:doc Section: one\n\trequire.True(t, true)\n}\n",
		"//conformance:doc Section: one\nfunc helper() {}\n",
	} {
		_, err = of(here, source)
		require.ErrorContains(t, err, "is above no test", source)
	}
}
