// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package sharedinformers

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
)

// observedFactory notes which informers it was asked for, and who still uses them. It keeps one entry for each
// informer that the factory itself keeps.
type observedFactory struct {
	informerfactory.InformerFactory
	handlers *Handlers

	mu    sync.Mutex
	asked map[schema.GroupVersionResource]*asked
}

// asked is an informer for which a controller has asked.
type asked struct {
	informer stalenessmonitor.Informer
	// users run its controller now; abandoned means that there were some, and there are no more.
	users     int
	abandoned bool
}

// ObserveFactory notes which informers the garbage collector and quota use, whatever their types, and how far the
// handlers are that are added to them. Both run the controller of an informer for as long as discovery shows its
// resource. The informer itself goes on, also when its resource is served under another version or not at all
// any more.
func (h *Handlers) ObserveFactory(factory informerfactory.InformerFactory) informerfactory.InformerFactory {
	return &observedFactory{InformerFactory: factory, handlers: h, asked: map[schema.GroupVersionResource]*asked{}}
}

// ForResource implements informerfactory.InformerFactory.
func (f *observedFactory) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := f.InformerFactory.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked[gvr] == nil {
		f.asked[gvr] = &asked{informer: f.handlers.informer(informer.Informer())}
	}
	return observedGeneric{wrappedGeneric{informer, f.handlers.informer}, func() func() { return f.use(gvr) }}, nil
}

// use counts one more user until done is called, once.
func (f *observedFactory) use(gvr schema.GroupVersionResource) (done func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.asked[gvr]
	a.users++
	a.abandoned = false
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		a.users--
		a.abandoned = a.users == 0
	}
}

// inUse adds to out the informers that were not abandoned by all their users.
func (f *observedFactory) inUse(out map[schema.GroupVersionResource]stalenessmonitor.Informer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for gvr, a := range f.asked {
		if !a.abandoned {
			out[gvr] = a.informer
		}
	}
}

type observedGeneric struct {
	wrappedGeneric
	use func() (done func())
}

// Informer implements informers.GenericInformer.
func (g observedGeneric) Informer() cache.SharedIndexInformer {
	return observedInformer{g.wrappedGeneric.Informer(), g.use}
}

type observedInformer struct {
	cache.SharedIndexInformer
	use func() (done func())
}

// GetController implements cache.SharedInformer.
func (i observedInformer) GetController() cache.Controller {
	return observedController{i.SharedIndexInformer.GetController(), i.use}
}

// observedController counts as a user of its informer while it runs. That of a shared informer has nothing to
// run: here it waits for its end.
type observedController struct {
	cache.Controller
	use func() (done func())
}

// Run implements cache.Controller.
func (c observedController) Run(stopCh <-chan struct{}) {
	c.RunWithContext(utilwait.ContextForChannel(stopCh))
}

// RunWithContext implements cache.Controller.
func (c observedController) RunWithContext(ctx context.Context) {
	defer c.use()()
	c.Controller.RunWithContext(ctx)
	<-ctx.Done()
}
