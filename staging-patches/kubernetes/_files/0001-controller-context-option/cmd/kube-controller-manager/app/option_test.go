// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"k8s.io/client-go/informers"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

func TestOptionsReachTheControllers(t *testing.T) {
	period := func(d time.Duration) Option {
		return func(_ context.Context, controllerContext *ControllerContext, _ clientbuilder.ControllerClientBuilder) error {
			controllerContext.ResyncPeriod = func() time.Duration { return d }
			return nil
		}
	}
	var controllerContext ControllerContext
	require.NoError(t, applyOptions(t.Context(), &controllerContext, nil, []Option{period(time.Second), period(time.Minute)}))
	require.Equal(t, time.Minute, controllerContext.ResyncPeriod(), "options apply in order, to the context that the controllers get")

	broken := errors.New("no tracker")
	fail := func(context.Context, *ControllerContext, clientbuilder.ControllerClientBuilder) error { return broken }
	err := applyOptions(t.Context(), &controllerContext, nil, []Option{fail, period(time.Hour)})
	require.ErrorIs(t, err, broken)
	require.Equal(t, time.Minute, controllerContext.ResyncPeriod(), "nothing is built after an error")
}

// named is a factory of each controller's own.
type named struct {
	informers.SharedInformerFactory
	name string
}

func (named) ForController(name string) informers.SharedInformerFactory { return named{name: name} }

func TestEachControllerHasInformersOfItsOwn(t *testing.T) {
	term := ControllerContext{InformerFactory: named{name: "term"}}
	require.Equal(t, named{name: "podgc"}, forController(term, "podgc").InformerFactory)
	require.Equal(t, named{name: "term"}, term.InformerFactory)

	plain := struct {
		informers.SharedInformerFactory
	}{}
	require.Equal(t, plain, forController(ControllerContext{InformerFactory: plain}, "podgc").InformerFactory, "one that hands out none is upstream's")
}
