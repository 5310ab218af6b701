// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

// Option is the seam by which the program that embeds this package reaches the controllers. It is called once for every
// ControllerContext, that is once a term of leadership, when the context is complete and before any controller or informer is
// built from it. What it sets there the controllers get. root makes clients with the identity of the process, as the informers
// have. ctx ends with the term. An error ends the process.
type Option func(ctx context.Context, controllerContext *ControllerContext, root clientbuilder.ControllerClientBuilder) error

func applyOptions(ctx context.Context, controllerContext *ControllerContext, root clientbuilder.ControllerClientBuilder, opts []Option) error {
	for _, opt := range opts {
		if err := opt(ctx, controllerContext, root); err != nil {
			return fmt.Errorf("failed to set up the controller context: %w", err)
		}
	}
	return nil
}

// ControllerInformers may be the InformerFactory that an Option sets: each controller, by its name in --controllers, has one of its own.
type ControllerInformers interface {
	ForController(name string) informers.SharedInformerFactory
}

func forController(c ControllerContext, name string) ControllerContext {
	if f, ok := c.InformerFactory.(ControllerInformers); ok {
		c.InformerFactory = f.ForController(name)
	}
	return c
}
