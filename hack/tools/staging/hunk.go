// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// fileDiff is what a patch does to one file.
type fileDiff struct {
	name   string
	header string // diff --git, ---, +++
	hunks  []hunk
}

// hunk is one place of a file that a patch changes.
type hunk struct {
	file    string
	section string // the function that git says the place is in
	text    string // from @@ to the end
}

// adds says whether the patch makes the file.
func (f fileDiff) adds() bool { return strings.Contains(f.header, "\n--- /dev/null\n") }

// text is what a file has that the patch makes.
func (f fileDiff) text() string {
	var b strings.Builder
	for _, h := range f.hunks {
		for line := range strings.Lines(h.text) {
			switch line[0] {
			case '+':
				b.WriteString(line[1:])
			case '\\': // no newline at the end of the file
				text := strings.TrimSuffix(b.String(), "\n")
				b.Reset()
				b.WriteString(text)
			}
		}
	}
	return b.String()
}

var hunkStart = regexp.MustCompile(`^@@ -[0-9,]+ \+[0-9,]+ @@ ?(.*)`)

// splitDiff takes a patch apart, file by file and hunk by hunk.
func splitDiff(diff string) (files []fileDiff) {
	for line := range strings.Lines(diff) {
		if rest, ok := strings.CutPrefix(line, "diff --git a/"); ok {
			name, _, _ := strings.Cut(rest, " b/")
			files = append(files, fileDiff{name: name})
		}
		f := &files[len(files)-1]
		if start := hunkStart.FindStringSubmatch(strings.TrimSuffix(line, "\n")); start != nil {
			f.hunks = append(f.hunks, hunk{file: f.name, section: start[1]})
		}
		if n := len(f.hunks); n > 0 {
			f.hunks[n-1].text += line
		} else {
			f.header += line
		}
	}
	return files
}

func joinHunks(hunks []hunk) string {
	var b strings.Builder
	for _, h := range hunks {
		b.WriteString(h.text)
	}
	return b.String()
}

// lines returns what the hunk expects in the file, and of these the lines that it takes out.
func (h hunk) lines() (expects, removes []string) {
	for line := range strings.Lines(h.text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "-"):
			removes = append(removes, line[1:])
			expects = append(expects, line[1:])
		case strings.HasPrefix(line, " "), line == "":
			expects = append(expects, strings.TrimPrefix(line, " "))
		}
	}
	return expects, removes
}

// reason says why a hunk or an added file conflicts, and so what it takes.
type reason int

const (
	noReason     reason = iota
	noFile              // the base has no such file
	noCode              // nothing in the file resembles the place
	otherCode           // lines that the hunk takes out read differently
	otherPlace          // the hunk only adds, to a function that is there, beside lines that are not
	otherContext        // only lines around the change read differently
	linesApart          // all lines are there, but not together
	fileThere           // the base has a file of the added one's name
	noFolder            // the base does not have the package that the added file belongs to
)

// says gives what is there, and what it takes.
func (r reason) says() (why, takes string) {
	switch r {
	case noFile:
		return "the base does not have this file", "leave the hunk out, or bring the file with the change of upstream that made it"
	case noCode:
		return "the base does not have this code", "find where the base does the same and write the hunk for that place, or leave it out if nothing does"
	case otherCode:
		return "the code that the hunk replaces reads differently", "write the hunk for the base's code, and run the package's tests with the gates on and off"
	case otherPlace:
		return "the hunk only adds; the function or type named is there, but the lines beside the addition are not", "find the place, refresh the context, and see whether the addition fits the base"
	case otherContext:
		return "only the lines around the change read differently", "refresh the context; the change itself stands as it is"
	case fileThere:
		return "the base has a file of this name", "see whether it does the same; if not, give ours another name"
	case noFolder:
		return "the base does not have this package", "find where the base does the same, or leave the file out if nothing does"
	case linesApart:
		return "all expected lines are there, but not together", "refresh the context by hand"
	}
	return "", ""
}

// explain compares what a hunk expects with the place of the file that resembles it most. missed are the lines that
// differ there, as a diff: "-" the hunk expects, "+" the file has; if nothing resembles it, the lines that are nowhere.
func explain(h hunk, text string) (why reason, missed []string) {
	expects, removes := h.lines()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	best, from, to := 0, 0, 0
	for start := range lines {
		if weight(lines[start]) == 0 || !slices.Contains(expects, lines[start]) {
			continue
		}
		end := min(len(lines), start+len(expects)+len(expects)/2)
		score, last := resemblance(expects, lines[start:end])
		if score > best {
			best, from, to = score, start, start+last+1
		}
	}
	all := 0
	for _, line := range expects {
		all += weight(line)
	}
	if 3*best < all {
		for _, line := range expects {
			if weight(line) > 0 && !slices.Contains(lines, line) {
				missed = append(missed, "-"+line)
			}
		}
		if len(removes) == 0 && h.section != "" && strings.Contains("\n"+text, "\n"+h.section) {
			return otherPlace, missed
		}
		return noCode, missed
	}
	missed = lineDiff(expects, lines[from:to])
	lost := map[string]bool{}
	for _, line := range missed {
		if line[0] == '-' {
			lost[line[1:]] = true
		}
	}
	if len(missed) == 0 {
		return linesApart, nil
	}
	for _, line := range removes {
		if lost[line] {
			return otherCode, missed
		}
	}
	return otherContext, missed
}

// weight is how much it says of a place that a line is there: a lone bracket or an empty line says little.
func weight(line string) int {
	if len(strings.Trim(line, " \t{}()")) < 3 {
		return 0
	}
	return len(strings.TrimSpace(line))
}

// common is the table of longest common subsequences of a[i:] and b[j:], by cost of their lines.
func common(a, b []string, cost func(string) int) [][]int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			table[i][j] = max(table[i+1][j], table[i][j+1])
			if a[i] == b[j] {
				table[i][j] = max(table[i][j], table[i+1][j+1]+cost(a[i]))
			}
		}
	}
	return table
}

// resemblance says how much of a stands in b in this order, and which line of b is the last of it.
func resemblance(a, b []string) (score, last int) {
	table := common(a, b, weight)
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j] && table[i][j] == table[i+1][j+1]+weight(a[i]):
			if weight(a[i]) > 0 {
				last = j
			}
			i, j = i+1, j+1
		case table[i][j] == table[i+1][j]:
			i++
		default:
			j++
		}
	}
	return table[0][0], last
}

// lineDiff lists the lines that are only in a ("-") or only in b ("+"), in order.
func lineDiff(a, b []string) (out []string) {
	table := common(a, b, func(line string) int { return 1 + weight(line) })
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || (i < len(a) && table[i+1][j] >= table[i][j+1]):
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	return out
}

// atoi reads a number that a regular expression has already found to be one.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}
