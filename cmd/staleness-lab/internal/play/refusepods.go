// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package play

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// quotaLimit is how soon the apiserver has to admit by a new quota.
const quotaLimit = 10 * time.Second

// quotaName is the ResourceQuota's name, in the namespace default.
const quotaName = "staleness-lab"

// refusePods has a quota refuse every new pod in the namespace default, deletes one, and takes the quota away again.
func (p *Player) refusePods(ctx context.Context, d time.Duration, r *report) (err error) {
	quotas, inDefault := p.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault), p.Client.CoreV1().Pods(metav1.NamespaceDefault)
	all, err := inDefault.List(ctx, metav1.ListOptions{LabelSelector: p.Sample})
	if err != nil {
		return err
	}
	if len(all.Items) == 0 {
		return errors.New("the sample DaemonSet has no pod to delete")
	}
	_, err = quotas.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: quotaName},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("the quota exists already: kubectl delete resourcequota %s", quotaName)
	}
	if err != nil {
		return err
	}
	refusing := true
	allow := func() error {
		if !refusing {
			return nil
		}
		refusing = false
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		return quotas.Delete(undo, quotaName, metav1.DeleteOptions{})
	}
	defer func() { err = errors.Join(err, allow()) }()
	// The apiserver admits by its own cache of quotas, which has a new one a little later.
	var answer error
	refuses, err := watch(ctx, quotaLimit, func(ctx context.Context) bool {
		_, answer = inDefault.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: quotaName + "-"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/refused"}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(answer)
	})
	if err != nil {
		return err
	}
	if !refuses {
		return errors.Join(fmt.Errorf("the apiserver does not refuse pods %v after the quota was made", quotaLimit), answer)
	}
	r.line("ResourceQuota default/%s refuses every new pod for %v", quotaName, d)

	missed := all.Items[0].Name
	begin := time.Now()
	if err := inDefault.Delete(ctx, missed, metav1.DeleteOptions{}); err != nil {
		return err
	}
	r.line("deleted pod default/%s, which its DaemonSet has to make again", missed)
	refused := &refusals{}
	if _, err := watch(ctx, d, func(context.Context) bool {
		before := refused.count
		if refused.read(p.Cluster.APIServers()[0].AuditLogPath(), begin) == nil && refused.count > before {
			r.line("Fresh KCM: has tried %d times, last after %.1f s", refused.count, refused.last.Sub(begin).Seconds())
		}
		return false
	}); err != nil {
		return err
	}
	if err := allow(); err != nil {
		return err
	}
	allowed := time.Now()
	r.line("the quota is gone")
	healed, err := watch(ctx, healLimit, func(ctx context.Context) bool {
		now, err := inDefault.List(ctx, metav1.ListOptions{LabelSelector: p.Sample})
		return err == nil && len(now.Items) >= len(all.Items)
	})
	if err != nil {
		return err
	}
	if healed {
		r.line("Fresh KCM: the pod is back %.1f s later, after %d attempts that were refused", time.Since(allowed).Seconds(), refused.count)
	} else {
		r.line("the pod is not back after %v, its controller's backoff: kubectl describe daemonset sample", healLimit)
	}
	r.text("Stock upstream: %s", stockRefused)
	return nil
}

// refusals are the pods that an apiserver has refused to let a kube-controller-manager create.
type refusals struct {
	offset int64 // in the audit log
	count  int
	last   time.Time
}

// read goes on reading the audit log, and counts from a time.
func (n *refusals) read(auditLog string, since time.Time) (err error) {
	n.offset, err = controlplane.ReadAudit(auditLog, n.offset, func(e controlplane.AuditEvent) {
		if e.Verb == "create" && e.ObjectRef.Resource == "pods" && e.ObjectRef.Subresource == "" &&
			e.ResponseStatus.Code == http.StatusForbidden && e.ServiceAccount() != "" && e.RequestReceivedTimestamp.After(since) {
			n.count++
			n.last = e.RequestReceivedTimestamp
		}
	})
	return err
}
