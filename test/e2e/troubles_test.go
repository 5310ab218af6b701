// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsecurity "k8s.io/pod-security-admission/api"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/webhook"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

// trouble is an everyday history without a fault of a watch: something is in the way, or somebody changes things.
type trouble struct {
	// name is also the namespace's, after the turn's.
	name string
	// labels are the namespace's, besides troubleLabel with the name.
	labels map[string]string
	// prepare makes in the namespace what is in the way.
	prepare func(ctx context.Context, r *run, namespace string) error
	// owners are made when the history begins, with the pods' template changed by template.
	owners   workload.Kinds
	template func(*corev1.PodTemplateSpec)
	// happens is what happens then; it returns when the end state is reached. Without it nothing ever helps, and
	// what was done in troubleLasts is judged.
	happens func(ctx context.Context, r *run, namespace string) error
	// reaction names a resource whose status is written after each status of a pod that happens writes.
	reaction string
}

// troubleLabel has webhooks and policies select the namespaces that they are meant for.
const troubleLabel = "e2e.fresh-kcm.io/trouble"

// someOfEach are objects of every kind that makes pods.
var someOfEach = workload.Kinds{ReplicaSets: 5, ReplicationControllers: 2, StatefulSets: 2, DaemonSets: 5, Jobs: 2, Replicas: 3, Node: "node-0000"}

// refusals are the ways in which the apiserver may refuse pods for ever.
func refusals() []trouble {
	quota := someOfEach
	quota.ReplicaSets = 20
	return []trouble{
		{name: "quota", owners: quota, prepare: noPods},
		{name: "webhook-down", owners: someOfEach},
		{name: "webhook-429", owners: someOfEach},
		{name: "limit-range", owners: someOfEach, prepare: smallPods, template: func(t *corev1.PodTemplateSpec) {
			t.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
			t.Spec.Containers[0].Resources.Limits = t.Spec.Containers[0].Resources.Requests
		}},
		{name: "policy", owners: someOfEach},
		{name: "pod-security", owners: someOfEach, labels: map[string]string{podsecurity.EnforceLevelLabel: string(podsecurity.LevelRestricted)}},
		{name: "no-account", owners: someOfEach, template: func(t *corev1.PodTemplateSpec) { t.Spec.ServiceAccountName = "nobody" }},
	}
}

// noPods is a quota under which there can be no pod. It returns when the apiserver enforces it.
func noPods(ctx context.Context, r *run, namespace string) error {
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	quotas := r.Client.CoreV1().ResourceQuotas(namespace)
	if _, err := quotas.Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	r.eventually(ctx, "the quota to be in force", func() (bool, error) {
		quota, err := quotas.Get(ctx, "none", metav1.GetOptions{})
		return err == nil && len(quota.Status.Hard) > 0, err
	})
	return nil
}

// smallPods is a limit that allows small pods only.
func smallPods(ctx context.Context, r *run, namespace string) error {
	_, err := r.Client.CoreV1().LimitRanges(namespace).Create(ctx, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "small"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}},
	}, metav1.CreateOptions{})
	return err
}

// admission puts in force what refuses or delays pods in the namespaces labelled for it.
func (r *run) admission(ctx context.Context, hooks *webhook.Server) error {
	client := r.Client.AdmissionregistrationV1()
	options := metav1.CreateOptions{}
	for name, url := range map[string]string{
		"webhook-down": "https://127.0.0.1:1/", // nobody listens on port 1
		"webhook-429":  hooks.URL(webhook.TooManyRequests),
		"webhook-slow": hooks.URL(webhook.Slow),
	} {
		_, err := client.ValidatingWebhookConfigurations().Create(ctx, &admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Webhooks: []admissionv1.ValidatingWebhook{{
				Name:                    name + ".fresh-kcm.io",
				ClientConfig:            admissionv1.WebhookClientConfig{URL: &url, CABundle: r.Cluster.CAData()},
				Rules:                   podsCreated(),
				FailurePolicy:           new(admissionv1.Fail),
				SideEffects:             new(admissionv1.SideEffectClassNone),
				NamespaceSelector:       inTrouble(name),
				AdmissionReviewVersions: []string{"v1"},
			}},
		}, options)
		if err != nil {
			return err
		}
	}
	_, err := r.denies(ctx, "policy", *inTrouble("policy"), podsCreated()[0])
	return err
}

// denies has a policy refuse what the rule says in the namespaces that are selected. An apiserver takes notice of it, and of its removal, some time later.
func (r *run) denies(ctx context.Context, name string, namespaces metav1.LabelSelector, rule admissionv1.RuleWithOperations) (remove func(context.Context) error, err error) {
	client := r.Client.AdmissionregistrationV1()
	if _, err := client.ValidatingAdmissionPolicies().Create(ctx, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}}},
			Validations:      []admissionv1.Validation{{Expression: "false", Message: "not here"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	bindings := client.ValidatingAdmissionPolicyBindings()
	_, err = bindings.Create(ctx, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources:    &admissionv1.MatchResources{NamespaceSelector: &namespaces},
		},
	}, metav1.CreateOptions{})
	return func(ctx context.Context) error { return bindings.Delete(ctx, name, metav1.DeleteOptions{}) }, err
}

func podsCreated() []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
}

func inTrouble(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{troubleLabel: name}}
}

// refused waits until what refuses pods in a namespace does so: an apiserver takes notice of a policy or webhook
// some time after it was made.
func (r *run) refused(ctx context.Context, namespace string, template func(*corev1.PodTemplateSpec)) {
	pod := corev1.PodTemplateSpec{Spec: workload.Orphan("probe", "probe", "").Spec}
	if template != nil {
		template(&pod)
	}
	r.eventually(ctx, "pods to be refused in "+namespace, func() (bool, error) {
		made, err := r.Client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: pod.Spec},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && made.Name == "" {
			return false, fmt.Errorf("a pod without a name")
		}
		return err != nil, nil
	})
}
