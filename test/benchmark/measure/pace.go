// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// paces is how often the piece of work is done, of which the shortest counts: others may have the processor meanwhile.
	paces = 5
	// pacePods is how many pods are written and read each time.
	pacePods = 5000
)

// Pace is how long a fixed piece of work takes, in seconds: some thousand pods written as JSON and read again. It shows how fast the machine is just then. What shares its caches and its
// memory slows it down, and neither the load average nor the time that was stolen shows that.
func Pace() (float64, error) {
	pods := corev1.PodList{}
	for i := range pacePods {
		pods.Items = append(pods.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), Annotations: map[string]string{"text": strings.Repeat("x", 1000)}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "container", Image: "image", Command: []string{"one", "two", "three"}}}},
		})
	}
	var least time.Duration
	for i := range paces {
		began := time.Now()
		data, err := json.Marshal(pods)
		if err == nil {
			err = json.Unmarshal(data, &corev1.PodList{})
		}
		if err != nil {
			return 0, fmt.Errorf("measuring the machine's pace: %w", err)
		}
		if took := time.Since(began); i == 0 || took < least {
			least = took
		}
	}
	return least.Seconds(), nil
}
