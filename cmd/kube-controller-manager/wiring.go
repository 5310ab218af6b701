// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/pkg/leadership"
	"github.com/fresh-kcm/fresh-kcm/pkg/sharedinformers"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
	"github.com/fresh-kcm/fresh-kcm/pkg/wiring"
)

// page shows the caches and what waits for them, whether this process leads or not.
var page = &stalenessz.Page{}

// watches are those of the informers, if a gate is on.
var watches = transport.NewWatches()

// handlers are those of all informers, if a gate is on.
var handlers = sharedinformers.NewHandlers()

// exempted are the controllers that are to be as upstream's.
var exempted sets.Set[string]

// terms are those of leadership: two with leader migration.
var terms = &wiring.Terms{}

// prepare opens, once the gates are known and before anything runs, the seams that are not for one term of
// leadership. With both gates off it changes nothing. Exempt controllers get no store.
func prepare(exempt sets.Set[string]) {
	exempted = exempt
	gates := utilfeature.DefaultFeatureGate
	page.Consistency, page.Monitoring = gates.Enabled(features.StaleControllerConsistency), gates.Enabled(features.MonitorInformerStaleness)
	if page.Consistency || page.Monitoring {
		app.HandleSecure(stalenessz.Path, page)
		app.ObserveElection(leadership.Observe)
		page.Publish()
	}
	if page.Consistency {
		app.WrapClients(clients)
		consistency.SetProvider(except(exempt, terms.Store))
	}
	if page.Consistency || page.Monitoring {
		app.WrapInformerFactory(handlers.ObserveFactory)
		app.WrapInformerClients(watches.Clients)
	}
}

// clients has every client of a term of leadership record the writes of reconciles, send no deletion without what the inventory
// promises of it, and write nothing once the leader lease has run out.
func clients(ctx context.Context, builder clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder {
	var lease *transport.Lease
	if lock := leadership.From(ctx); lock != nil {
		lease = &transport.Lease{Leadership: lock, Duration: lock.LeaseDuration}
	}
	return transport.Clients(builder, lease, exempted.UnsortedList()...)
}

var (
	_ app.Option              = wire
	_ app.ControllerInformers = (*sharedinformers.StartInformers)(nil)
)

// wire hands this project's objects to the controllers of one term of leadership. With both gates off
// it changes nothing.
func wire(ctx context.Context, controllerContext *app.ControllerContext, root clientbuilder.ControllerClientBuilder) error {
	klog.FromContext(ctx).Info("Protection against stale caches",
		"StaleControllerConsistency", page.Consistency, "MonitorInformerStaleness", page.Monitoring)
	if !page.Consistency && !page.Monitoring {
		return nil
	}
	config, err := root.Config("fresh-kcm")
	if err != nil {
		return err
	}
	client, err := root.Client("fresh-kcm")
	if err != nil {
		return err
	}
	w, err := wiring.New(ctx, config, controllerContext.RESTMapper, watches, wiring.NewEvents(ctx, client))
	if err != nil {
		return err
	}
	if lock := leadership.From(ctx); lock != nil {
		w.Lead(lock)
	}
	context.AfterFunc(ctx, page.Add(w))
	if page.Consistency {
		terms.Begin(w)
	}
	controllerContext.InformerFactory = handlers.Factory(controllerContext.InformerFactory)
	if page.Monitoring {
		w.Monitor(sharedinformers.Informers(ctx, controllerContext.InformerFactory, controllerContext.ObjectOrMetadataInformerFactory, controllerContext.RESTMapper), handlers)
	}
	if page.Consistency {
		controllerContext.InformerFactory = w.StartInformers(controllerContext.InformerFactory, controllerContext.RESTMapper, waitsToStart(exempted))
	}
	return nil
}
