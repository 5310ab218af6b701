// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fresh-kcm/fresh-kcm/test/internal/truth"
)

// RuleRevisions is broken by a Deployment that recreates, and runs pods of two revisions at once.
const RuleRevisions = "pods of two revisions of a Recreate Deployment at once"

// Revisions goes through every event of the pods and returns each that made a pod of a Deployment that recreates while there was
// one of another of its ReplicaSets that had not ended. It needs pods, replicasets and deployments recorded.
func Revisions(t *truth.Recorder) []Violation {
	var out []Violation
	recreates := map[types.UID]bool{}
	for _, e := range t.Events(truth.Deployments) {
		// As it was in the end: no scenario changes that.
		recreates[e.UID] = e.Object.(*appsv1.Deployment).Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
	}
	deploymentOf := map[types.UID]types.UID{}
	for _, e := range t.Events(truth.ReplicaSets) {
		if ref := metav1.GetControllerOfNoCopy(e.Object.(*appsv1.ReplicaSet)); ref != nil && recreates[ref.UID] {
			deploymentOf[e.UID] = ref.UID
		}
	}
	live := map[types.UID]map[types.UID]truth.Event{} // by Deployment
	for _, e := range t.Events(truth.Pods) {
		set := replicaSetOf(pod(e))
		deployment, ok := deploymentOf[set]
		if !ok {
			continue
		}
		if live[deployment] == nil {
			live[deployment] = map[types.UID]truth.Event{}
		}
		_, known := live[deployment][e.UID]
		if e.Type == watch.Deleted || Ended(pod(e)) {
			delete(live[deployment], e.UID)
			continue
		}
		live[deployment][e.UID] = e
		var others []string
		for _, other := range live[deployment] {
			if replicaSetOf(pod(other)) != set {
				others = append(others, other.Name)
			}
		}
		if !known && len(others) > 0 {
			slices.Sort(others)
			out = append(out, Violation{
				Oracle: "S2", Rule: RuleRevisions, Object: e.Namespace + "/" + e.Name, RV: e.RV, Time: e.Time, Detail: "beside " + strings.Join(others, ", "),
			})
		}
	}
	return out
}
