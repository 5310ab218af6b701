// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/benchmark/sample"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

func TestFirstRight(t *testing.T) {
	led := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	at := func(seconds int) time.Time { return led.Add(time.Duration(seconds) * time.Second) }
	write := func(seconds int, namespace string) controlplane.AuditEvent {
		e := controlplane.AuditEvent{Stage: "ResponseComplete", Verb: "create", UserAgent: "kube-controller-manager/v1", StageTimestamp: at(seconds)}
		e.ObjectRef.Namespace, e.ObjectRef.Resource = namespace, "pods"
		return e
	}
	for _, test := range []struct {
		name   string
		writes []int
		wrong  []int
		want   any
	}{
		{"all right", []int{-1, 2, 3}, nil, 2.0},
		{"the predecessor's wrong ones are not the successor's", []int{-2, 2, 3}, []int{-2}, 2.0},
		{"right after wrong ones only", []int{1, 2, 3, 9}, []int{1, 3}, 9.0},
		{"none after the wrong ones", []int{1, 3}, []int{3}, nil},
		{"none", nil, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			events := []controlplane.AuditEvent{write(1, "another")}
			for _, s := range test.writes {
				events = append(events, write(s, "turn-1"))
			}
			var wrong []oracle.Violation
			for _, s := range test.wrong {
				wrong = append(wrong, oracle.Violation{Time: at(s)})
			}
			turn := &turn{namespace: "turn-1", led: led, figures: map[string]float64{}}
			turn.firstRight(events, wrong)
			if test.want == nil {
				require.NotContains(t, turn.figures, sample.FirstRight)
				return
			}
			require.Equal(t, test.want, turn.figures[sample.FirstRight])
		})
	}
}
