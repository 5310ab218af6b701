// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// finishedPods are those of the named pods that have failed or succeeded. To delete them disrupts nothing: they are to be
// replaced.
func finishedPods(nodeToDaemonPods map[string][]*v1.Pod, names []string) []string {
	if len(names) == 0 {
		return nil
	}
	ended := map[string]bool{}
	for _, pods := range nodeToDaemonPods {
		for _, pod := range pods {
			ended[pod.Name] = podutil.IsPodTerminal(pod)
		}
	}
	var finished []string
	for _, name := range names {
		if ended[name] {
			finished = append(finished, name)
		}
	}
	return finished
}
