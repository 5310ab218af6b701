// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, page string) Metrics {
	t.Helper()
	m, err := Parse([]byte(page))
	require.NoError(t, err)
	return m
}

func TestSums(t *testing.T) {
	m := parse(t, "# TYPE depth gauge\ndepth{name=\"a\"} 3\ndepth{name=\"b\"} 4\nplain 5\n"+
		"informer_staleness_state{resource=\"pods\",state=\"unknown\"} 1\ninformer_staleness_state{resource=\"pods\",state=\"fresh\"} 0\n"+
		"informer_staleness_state{resource=\"nodes\",state=\"unknown\"} 0\ninformer_staleness_state{resource=\"nodes\",state=\"fresh\"} 1\n")
	require.Equal(t, 7.0, m.Sum("depth"))
	require.Equal(t, 5.0, m.Sum("plain"))
	require.Zero(t, m.Sum("missing"))
	most, ok := m.Max("depth")
	require.True(t, ok)
	require.Equal(t, 4.0, most)
	_, ok = m.Max("missing")
	require.False(t, ok)
	all, unknown := m.Caches()
	require.Equal(t, []int{2, 1}, []int{all, unknown})
	_, err := Parse([]byte("a{ 1\n"))
	require.Error(t, err)
}

func TestAlarms(t *testing.T) {
	m := parse(t, `informer_staleness_state_changes_total{resource="pods",state="fresh"} 16
informer_staleness_state_changes_total{resource="pods",state="quiet"} 8
informer_staleness_state_changes_total{resource="pods",state="lagging"} 4
informer_staleness_state_changes_total{resource="nodes",state="stalled"} 2
informer_staleness_state_changes_total{resource="nodes",state="unknown"} 1
`)
	require.Equal(t, 7.0, m.Alarms())
	require.Zero(t, parse(t, "plain 5\n").Alarms())
}

func TestRequests(t *testing.T) {
	before := parse(t, `apiserver_request_total{verb="POST",resource="pods",subresource="",code="201"} 10
apiserver_request_total{verb="POST",resource="pods",subresource="binding",code="201"} 10
apiserver_request_total{verb="GET",resource="",subresource="/metrics",code="200"} 1
`)
	after := parse(t, `apiserver_request_total{verb="POST",resource="pods",subresource="",code="201"} 12
apiserver_request_total{verb="POST",resource="pods",subresource="",code="409"} 3
apiserver_request_total{verb="POST",resource="pods",subresource="binding",code="201"} 10
apiserver_request_total{verb="GET",resource="",subresource="/metrics",code="200"} 7
apiserver_request_total{verb="APPLY",resource="nodes",subresource="status",code="200"} 4
`)
	require.Equal(t, map[string]int{"post pods": 5, "apply nodes/status": 4}, Requests(before, after))
}

func TestQuantile(t *testing.T) {
	histogram := func(a, b, all string) string {
		return "# TYPE h histogram\nh_bucket{le=\"1\"} " + a + "\nh_bucket{le=\"3\"} " + b + "\nh_bucket{le=\"+Inf\"} " + all + "\nh_sum 0\nh_count " + all + "\n"
	}
	before := parse(t, histogram("10", "10", "10"))
	after := parse(t, histogram("14", "18", "20"))
	for q, want := range map[float64]float64{0.2: 0.5, 0.4: 1, 0.6: 2, 0.8: 3, 0.99: 3} {
		require.InDelta(t, want, Quantile(q, "h", before, after), 1e-9, "quantile %v of 4 up to 1, 4 up to 3 and 2 above", q)
	}
	require.Zero(t, Quantile(0.5, "h", after, after), "nothing between")
	require.Zero(t, Quantile(0.5, "missing", before, after))
}

func TestSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := []string{"# HELP workqueue_depth d\n# TYPE workqueue_depth gauge\nworkqueue_depth{name=\"a\"} 1\n", "dropped{name=\"a\"} 9\nworkqueue_depth{name=\"a\"} 9\n", "workqueue_depth{name=\"a\"} 2\n"}
		n := 0
		dir := filepath.Join(t.TempDir(), "new", "a")
		s, err := Record(context.Background(), dir, time.Second, func(context.Context) ([]byte, error) {
			n++
			return []byte(pages[(n-1)%len(pages)]), nil
		})
		require.NoError(t, err)
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		require.NoError(t, s.Stop())
		most, ok := s.Most("workqueue_depth")
		require.True(t, ok)
		require.Equal(t, 9.0, most)
		_, ok = s.Most("informer_staleness_handler_lag_seconds")
		require.False(t, ok)
		require.NoError(t, s.Judge(map[string]int{"S2": 3, "S1": 0}))
		for name, want := range map[string]string{
			"946684800000.prom": "workqueue_depth{name=\"a\"} 1\n",
			"946684801000.prom": "workqueue_depth{name=\"a\"} 9\n",
			"946684802000.prom": "workqueue_depth{name=\"a\"} 2\n",
			"judge.prom":        "benchmark_wrong_actions{kind=\"S1\"} 0\nbenchmark_wrong_actions{kind=\"S2\"} 3\n",
		} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, want, string(data), name)
		}
	})
}

func TestSeriesError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s, err := Record(context.Background(), filepath.Join(t.TempDir(), "a"), time.Second, func(context.Context) ([]byte, error) {
			if asked.Add(1) > 1 {
				return nil, errors.New("refused")
			}
			return []byte("a 1\n"), nil
		})
		require.NoError(t, err)
		time.Sleep(1500 * time.Millisecond)
		require.ErrorContains(t, s.Stop(), "refused")
	})
}

func TestProcess(t *testing.T) {
	before, err := ReadProcess(os.Getpid())
	require.NoError(t, err)
	block := make([]byte, 64<<20)
	for i := range block {
		block[i] = byte(i)
	}
	peak, err := ReadProcess(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, peak.Peak, before.Peak+32<<20)
	require.Contains(t, strings.Repeat("x", int(block[1])), "x")
	for spent := before; spent.CPU <= before.CPU; { // To ask takes CPU time.
		spent, err = ReadProcess(os.Getpid())
		require.NoError(t, err)
	}
	_, err = ReadProcess(-1)
	require.Error(t, err)
	m := Machine()
	require.NotZero(t, m.Cores)
	require.NotZero(t, m.Memory)
	require.Contains(t, m.Kernel, "Linux ")
}
