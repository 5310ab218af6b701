// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/rig"
	"github.com/fresh-kcm/fresh-kcm/test/internal/workload"
)

const (
	// loadLimit bounds one step of a load, loadPoll is how often its end is looked for: seldom, since that costs the
	// apiserver what is to be measured. The exact time of the end is in the audit log.
	loadLimit = 5 * time.Minute
	loadPoll  = 250 * time.Millisecond
	// cronJobsMade is how long the making of CronJobs may take before their minute.
	cronJobsMade = 30 * time.Second
)

// load is everyday work without a fault. It returns when its end state is reached.
type load struct {
	name string
	run  func(ctx context.Context, r *run, namespace string)
	// clean, unless nil, removes what is not in the namespace. It is not measured. Namespaces of the load's own have names that begin
	// with that of its namespace and a hyphen.
	clean func(ctx context.Context, r *run, namespace string)
	// late is for how long its end waits by chance, whatever is done for it.
	late time.Duration
}

// deploymentLoad makes Deployments and rolls all of them at once.
func deploymentLoad(count int, replicas int32) load {
	return load{name: fmt.Sprintf("%d Deployments of %d pods made and rolled", count, replicas), run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		deployments := r.Client.AppsV1().Deployments(namespace)
		for i := range count {
			d := workload.Deployment(fmt.Sprintf("deployment-%02d", i), replicas)
			d.Namespace = namespace
			_, err := deployments.Create(ctx, d, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		r.deploymentsDone(ctx, namespace, count)
		for i := range count {
			_, err := deployments.Patch(ctx, fmt.Sprintf("deployment-%02d", i), types.StrategicMergePatchType, imagePatch("next"), metav1.PatchOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		r.deploymentsDone(ctx, namespace, count)
	}}
}

// jobLoad runs Jobs to their end.
func jobLoad(count int, pods int32) load {
	return load{name: fmt.Sprintf("%d Jobs of %d pods", count, pods), run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		for i := range count {
			job := workload.Job(fmt.Sprintf("job-%03d", i), pods)
			job.Namespace = namespace
			_, err := r.Client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		r.counts(ctx, "all Jobs to be complete", count, func() (done int, err error) {
			list, err := r.Client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return 0, err
			}
			for i := range list.Items {
				if jobComplete(&list.Items[i]) {
					done++
				}
			}
			return done, nil
		})
	}}
}

// cronJobLoad has CronJobs run all at one minute, each a Job without pods.
func cronJobLoad(count int) load {
	return load{name: fmt.Sprintf("%d CronJobs of one minute", count), late: time.Minute, run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		due := time.Now().UTC().Add(cronJobsMade).Truncate(time.Minute).Add(time.Minute)
		for i := range count {
			c := workload.CronJob(fmt.Sprintf("cronjob-%03d", i))
			c.Namespace, c.Spec.Schedule, c.Spec.TimeZone = namespace, fmt.Sprintf("%d %d * * *", due.Minute(), due.Hour()), new("Etc/UTC")
			_, err := r.Client.BatchV1().CronJobs(namespace).Create(ctx, c, metav1.CreateOptions{})
			gomega.Expect(err).NotTo(gomega.HaveOccurred())
		}
		gomega.Expect(time.Now()).To(gomega.BeTemporally("<", due))
		r.counts(ctx, "all Jobs to be complete", count, func() (done int, err error) {
			list, err := r.Client.BatchV1().CronJobs(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return 0, err
			}
			for i := range list.Items {
				if s := list.Items[i].Status; s.LastSuccessfulTime != nil && len(s.Active) == 0 {
					done++
				}
			}
			return done, nil
		})
		say(fmt.Sprintf("%s: all complete %v after the minute\n", namespace, rounded(time.Since(due))))
	}}
}

// daemonSetLoad makes a DaemonSet on all nodes and rolls it.
func daemonSetLoad(nodes, maxUnavailable int) load {
	return load{name: fmt.Sprintf("a DaemonSet of %d nodes made and rolled", nodes), run: func(ctx context.Context, r *run, namespace string) {
		ginkgo.GinkgoHelper()
		ds := workload.DaemonSet("daemonset", workload.MaxUnavailable(maxUnavailable))
		ds.Namespace = namespace
		create(ctx, r, ds)
		r.daemonSetRolled(ctx, namespace, ds.Name, nodes)
		_, err := r.Client.AppsV1().DaemonSets(namespace).Patch(ctx, ds.Name, types.StrategicMergePatchType, imagePatch("next"), metav1.PatchOptions{})
		gomega.Expect(err).NotTo(gomega.HaveOccurred())
		r.daemonSetRolled(ctx, namespace, ds.Name, nodes)
	}}
}

func imagePatch(tag string) []byte {
	return fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"%s:%s"}]}}}}`, workload.Image, tag)
}

func (r *run) deploymentsDone(ctx context.Context, namespace string, count int) {
	ginkgo.GinkgoHelper()
	r.counts(ctx, "all Deployments to be done", count, func() (done int, err error) {
		list, err := r.Client.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return 0, err
		}
		for i := range list.Items {
			if deploymentDone(&list.Items[i]) {
				done++
			}
		}
		return done, nil
	})
}

func (r *run) daemonSetRolled(ctx context.Context, namespace, name string, nodes int) {
	ginkgo.GinkgoHelper()
	r.counts(ctx, "the DaemonSet to be done", nodes, func() (int, error) {
		ds, err := r.Client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil || ds.Status.ObservedGeneration != ds.Generation {
			return 0, ignoreNotFound(err)
		}
		return int(min(ds.Status.DesiredNumberScheduled, ds.Status.UpdatedNumberScheduled, ds.Status.NumberAvailable)), nil
	})
}

// counts waits until so many are done.
func (r *run) counts(ctx context.Context, what string, want int, count func() (int, error)) {
	ginkgo.GinkgoHelper()
	var got int
	var next time.Time
	gomega.Expect(rig.Wait(ctx, loadLimit, what, func() (_ bool, err error) {
		if time.Now().Before(next) {
			return false, nil
		}
		next = time.Now().Add(loadPoll)
		got, err = count()
		return got == want, err
	})).To(gomega.Succeed(), "%s: %d, want %d", what, got, want)
}

var deploymentDone, jobComplete = workload.DeploymentDone, workload.JobComplete
