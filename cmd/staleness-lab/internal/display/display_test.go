// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package display

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fake is a view of given lines and facts.
type fake struct {
	lines []Line
	facts []Fact
}

func (f fake) Lines(int) []Line { return f.lines }
func (f fake) Facts() []Fact    { return f.facts }

func text(lines ...string) fake {
	var f fake
	for _, l := range lines {
		f.lines = append(f.lines, Line{Text: l})
	}
	return f
}

// screen understands as much of a terminal as this package uses of it; anything else fails the test.
type screen struct {
	t       *testing.T
	columns int
	rows    int
	cells   []string
	x, y    int
}

func newScreen(t *testing.T, columns, rows int) *screen {
	return &screen{t: t, columns: columns, rows: rows, cells: make([]string, rows)}
}

func (s *screen) Write(b []byte) (int, error) {
	in := string(b)
	for in != "" {
		if seq, ok := strings.CutPrefix(in, "\x1b["); ok {
			end := strings.IndexFunc(seq, func(r rune) bool { return r >= '@' && r <= '~' })
			require.GreaterOrEqual(s.t, end, 0, "unfinished sequence")
			s.control(seq[:end], seq[end])
			in = seq[end+1:]
			continue
		}
		s.put(in[0])
		in = in[1:]
	}
	return len(b), nil
}

func (s *screen) control(arg string, final byte) {
	switch final {
	case 'A':
		n, err := strconv.Atoi(arg)
		require.NoError(s.t, err)
		require.LessOrEqual(s.t, n, s.y, "up beyond the top")
		s.y -= n
	case 'H':
		s.x, s.y = 0, 0
	case 'K':
		s.cells[s.y] = s.cells[s.y][:min(s.x, len(s.cells[s.y]))]
	case 'J':
		s.control("", 'K')
		for y := s.y + 1; y < s.rows; y++ {
			s.cells[y] = ""
		}
	case 'm', 'h', 'l':
	default:
		require.Failf(s.t, "unknown control sequence", "%q %c", arg, final)
	}
}

func (s *screen) put(c byte) {
	switch c {
	case '\r':
		s.x = 0
	case '\n': // the terminal driver makes it a line feed with carriage return
		s.x = 0
		if s.y++; s.y == s.rows {
			s.cells = append(s.cells[1:], "")
			s.y--
		}
	default:
		require.Less(s.t, s.x, s.columns-1, "the last column was written to: %q", s.cells[s.y])
		require.True(s.t, c >= ' ' && c <= '~', "byte %q", c)
		row := s.cells[s.y]
		s.cells[s.y] = row[:s.x] + string(c) + row[min(s.x+1, len(row)):]
		s.x++
	}
}

func (s *screen) shown() string { return strings.TrimRight(strings.Join(s.cells, "\n"), "\n") }

func newTerminal(s *screen) *terminal {
	return &terminal{out: s, colour: true, size: func() (int, int) { return s.columns, s.rows }}
}

func TestTerminalRedrawsInPlace(t *testing.T) {
	s := newScreen(t, 40, 10)
	_, err := s.Write([]byte("$ make run\n"))
	require.NoError(t, err)
	term := newTerminal(s)

	term.Show(text("one", "a longer line", "three"))
	require.Equal(t, "$ make run\none\na longer line\nthree", s.shown())
	term.Show(text("ONE", "short", "three", "four"))
	require.Equal(t, "$ make run\nONE\nshort\nthree\nfour", s.shown(), "longer")
	term.Show(text("one"))
	require.Equal(t, "$ make run\none", s.shown(), "shorter: nothing is left of the old lines")
	require.Equal(t, 2, s.y, "the cursor is below, where a shell's prompt may come")
}

func TestTerminalStaysInItsWindow(t *testing.T) {
	s := newScreen(t, 12, 4)
	term := newTerminal(s)
	many := text("0123456789abcdef", "\tcolour \x1b[31mred", "three", "four", "five")
	term.Show(many)
	term.Show(text("x"))
	term.Show(many)
	require.Equal(t, "01234567...\n colour ...\nthree", s.shown())
}

func TestTerminalIsRedrawnWhenItsSizeChanges(t *testing.T) {
	s := newScreen(t, 40, 6)
	term := newTerminal(s)
	term.Show(text("a line of twenty-odd cells", "two"))
	// What a terminal may have made of it: broken in two.
	s.columns, s.cells, s.y = 20, []string{"a line of twenty-odd", " cells", "two", "", "", ""}, 3
	term.Show(text("a line of twenty-odd cells", "two"))
	require.Equal(t, "a line of twenty...\ntwo", s.shown())
}

func TestTerminalWritesOnceAndOnlyChanges(t *testing.T) {
	var writes []string
	term := &terminal{out: writer(func(b []byte) { writes = append(writes, string(b)) }), size: func() (int, int) { return 80, 24 }}
	view := fake{lines: []Line{{Text: "bad", Style: Bad}}}
	term.Show(view)
	term.Show(view)
	require.Len(t, writes, 1)
	require.NotContains(t, writes[0], "\x1b[31m", "no colour asked for")
	term.colour = true
	view.lines = []Line{{Text: "worse", Style: Bad}}
	term.Show(view)
	require.Len(t, writes, 2)
	require.Contains(t, writes[1], "\x1b[31mworse\x1b[0m")
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

func TestPlainSaysChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &plain{out: &out, begin: time.Now(), said: map[string]string{}}
		say := func(text string) string {
			out.Reset()
			p.Show(fake{facts: []Fact{{Key: "etcd", Text: text}, {Key: "always", Text: "the same"}}})
			return out.String()
		}
		require.Equal(t, "    0.0s  etcd: starting\n    0.0s  the same\n", say("etcd: starting"))
		require.Empty(t, say("etcd: starting"))
		require.Empty(t, say(""))
		time.Sleep(72500 * time.Millisecond)
		require.Equal(t, "   72.5s  etcd: failed\n          | \"\x1b\" is gone\n          | last\n",
			strings.ReplaceAll(say("etcd: failed\n| \"\x1b\" is gone\n| last"), "?", "\x1b"))
	})
}

func TestCut(t *testing.T) {
	for _, test := range []struct {
		in      string
		columns int
		want    string
	}{
		{"hello", 5, "hello"},
		{"hello!", 5, "he..."},
		{"hello", 3, "hel"},
		{"hello", 0, ""},
		{"hello", -1, ""},
		{"ä\x1b\n", 9, "???"},
		{"", 3, ""},
	} {
		require.Equal(t, test.want, Cut(test.in, test.columns), fmt.Sprintf("%q in %d", test.in, test.columns))
	}
}

func TestTable(t *testing.T) {
	require.Equal(t, []string{"A    LONGER", "one  2", "x"}, Table([][]string{{"A", "LONGER"}, {"one", "2"}, {"x", ""}}))
}

func TestWrap(t *testing.T) {
	words := []string{"alpha", "beta", "gamma", "averylongword"}
	require.Equal(t, []string{"on: alpha beta", "    gamma", "    averylongword"}, Wrap("on: ", words, 16))
	require.Equal(t, []string{"on: alpha beta gamma averylongword"}, Wrap("on: ", words, 80))
	require.Len(t, Wrap("on: ", words, 1), 4, "a window too narrow for any word")
}

func TestClock(t *testing.T) {
	require.Equal(t, "0:05", Clock(5900*time.Millisecond))
	require.Equal(t, "62:01", Clock(62*time.Minute+time.Second))
}
