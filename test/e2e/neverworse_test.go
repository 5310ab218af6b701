// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/gates"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/slowdoor"
	"github.com/fresh-kcm/fresh-kcm/test/e2e/internal/webhook"
	"github.com/fresh-kcm/fresh-kcm/test/internal/oracle"
)

const (
	troubledNodes    = 10
	troublesLast     = 75 * time.Second
	longTroublesLast = 4 * time.Minute
)

var _ = ginkgo.Describe("Never worse than stock", ginkgo.Label("neverworse"), gates.StaleControllerConsistency(), func() {
	//conformance:kep-5647 Feature Enablement and Rollback: what reconcilers do is unchanged: ours makes no more tries, and is no later, than stock allows for
	ginkgo.It("in everyday troubles", ginkgo.Label(ordinary), func(ctx context.Context) {
		troubled(ctx).neverBehind(ctx, append(refusals(), changes(troublesLast)...), troublesLast, 0)
	}, ginkgo.SpecTimeout(slowMachine*10*time.Minute))
	ginkgo.It("in everyday troubles for some minutes", ginkgo.Label(long), func(ctx context.Context) {
		troubled(ctx).neverBehind(ctx, append(refusals(), changes(longTroublesLast)...), longTroublesLast, 0)
	}, ginkgo.SpecTimeout(30*time.Minute))
	ginkgo.It("while an admission webhook is slow", ginkgo.Label(long), func(ctx context.Context) {
		troubled(ctx).neverBehind(ctx, slowAdmission(troublesLast), troublesLast, 0)
	}, ginkgo.SpecTimeout(20*time.Minute))
	ginkgo.It("while every request is slow", ginkgo.Label(long), func(ctx context.Context) {
		// A namespace takes a hundred requests to delete, one after the other. And whether a status meets a conflict is
		// chance if the object is written faster than a request takes.
		troubles := slices.DeleteFunc(changes(troublesLast), func(t trouble) bool { return t.name == deletedInRollout || t.name == busy })
		troubled(ctx).neverBehind(ctx, troubles, troublesLast, time.Second)
	}, ginkgo.SpecTimeout(20*time.Minute))
})

// troubled starts a cluster for arms in turn, in which what refuses pods in some namespaces is in force.
func troubled(ctx context.Context) *run {
	ginkgo.GinkgoHelper()
	r := turns(ctx, controlplane.Options{Nodes: controlplane.NodeOptions{Count: troubledNodes}})
	hooks, err := webhook.Start(r.servingCert("webhook"))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(hooks.Close)
	gomega.Expect(r.admission(ctx, hooks)).To(gomega.Succeed())
	return r
}

// neverBehind has stock and ours go through the histories in turns, each time all at once, and judges ours by stock.
// Requests of the kube-controller-manager take delay longer meanwhile.
func (r *run) neverBehind(ctx context.Context, troubles []trouble, lasts, delay time.Duration) {
	ginkgo.GinkgoHelper()
	door, server := r.slowDoor(), ""
	if delay > 0 {
		server = door.URL()
	}
	outcomes := outcomes{}
	for i, c := range chosenArms(contenderU1, contenderP) {
		r.takesTurn(ctx, c, i, server, func(turn string) {
			const fences = "stale_controller_fences_total"
			var before float64
			if c.ours() {
				before = series(ctx, r, fences)
			}
			namespaces := r.prepare(ctx, turn, troubles)
			door.SetDelay(delay)
			outcomes[c] = append(outcomes[c], r.history(ctx, namespaces, troubles, lasts))
			door.SetDelay(0)
			r.removeNamespaces(ctx, namespaces...)
			if c.ours() {
				say(fmt.Sprintf("reads made for waiting objects: %.0f\n", series(ctx, r, fences)-before))
			}
		})
	}
	say(outcomes.table(troubles))
	var behind []string
	for _, t := range troubles {
		for c := range outcomes {
			if c.ours() {
				behind = append(behind, t.behind(outcomes.of(contenderU1, t), outcomes.of(c, t))...)
			}
		}
	}
	gomega.Expect(behind).To(gomega.BeEmpty(), "ours is behind stock (N)")
}

// slowDoor opens a door before the apiserver.
func (r *run) slowDoor() *slowdoor.Door {
	ginkgo.GinkgoHelper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.Cluster.CAData())
	door, err := slowdoor.Open(r.servingCert("slow-door"), r.Cluster.APIServers()[0].URL(), roots)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(door.Close)
	return door
}

func (r *run) servingCert(name string) tls.Certificate {
	ginkgo.GinkgoHelper()
	cert, key, err := r.Cluster.ServingCert(name)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	pair, err := tls.X509KeyPair(cert, key)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return pair
}

// prepare makes a namespace for each history, with what is in the way there.
func (r *run) prepare(ctx context.Context, turn string, troubles []trouble) (namespaces []string) {
	ginkgo.GinkgoHelper()
	for _, t := range troubles {
		namespace := turn + "-" + t.name
		namespaces = append(namespaces, namespace)
		labels := map[string]string{troubleLabel: t.name}
		maps.Copy(labels, t.labels)
		r.namespace(ctx, namespace, labels)
		if t.prepare != nil {
			gomega.Expect(t.prepare(ctx, r, namespace)).To(gomega.Succeed(), t.name)
		}
		if t.happens == nil {
			r.refused(ctx, namespace, t.template)
		}
	}
	return namespaces
}

// history goes through all troubles at once, and returns what each came to.
func (r *run) history(ctx context.Context, namespaces []string, troubles []trouble, lasts time.Duration) map[string]outcome {
	ginkgo.GinkgoHelper()
	began := time.Now()
	took := map[string]time.Duration{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, t := range troubles {
		wg.Go(func() {
			defer ginkgo.GinkgoRecover()
			gomega.Expect(t.owners.Create(ctx, r.Client, namespaces[i], t.template)).To(gomega.Succeed(), t.name)
			if t.happens == nil {
				return
			}
			gomega.Expect(t.happens(ctx, r, namespaces[i])).To(gomega.Succeed(), t.name)
			mu.Lock()
			defer mu.Unlock()
			took[t.name] = time.Since(began)
		})
	}
	wg.Wait()
	for time.Since(began) < lasts && ctx.Err() == nil {
		time.Sleep(polling)
	}
	ended := time.Now()
	events, err := r.Audit()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	requests, refused := oracle.RequestsIn(events, began, ended), oracle.RequestsIn(events, began, began.Add(lasts))
	out := map[string]outcome{}
	for i, t := range troubles {
		o := outcome{Attempts: map[string]int{}, Requests: map[string]int{}, Took: took[t.name]}
		counted := requests
		if t.happens == nil {
			counted = refused // in the same time on all arms
		}
		for request, n := range counted {
			switch {
			case request.Namespace != namespaces[i]:
			case request.Resource == "events":
				o.Events += n
			case request.Verb == "create" && request.Resource == "pods":
				o.Attempts[request.Account] += n
			default:
				o.Requests[request.Account+" "+request.Verb+" "+request.Resource] += n
			}
		}
		if t.reaction != "" {
			o.Reactions = oracle.Reactions(events, namespaces[i], t.reaction)
		}
		out[t.name] = o
	}
	return out
}
