// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
)

func TestHandleSecure(t *testing.T) {
	t.Cleanup(func() { secureHandlers = map[string]http.Handler{} })
	HandleSecure("/page", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	m := mux.NewPathRecorderMux("test")
	installSecureHandlers(m)
	require.Equal(t, []string{"/page"}, m.ListedPaths())
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/page", nil))
	require.Equal(t, http.StatusTeapot, w.Code)
}

func TestWrapInformerFactory(t *testing.T) {
	t.Cleanup(func() { WrapInformerFactory(nil) })
	factory := informerfactory.NewInformerFactory(nil, nil)
	require.Equal(t, factory, wrapped(factory), "without a wrapper it is upstream's")
	WrapInformerFactory(func(informerfactory.InformerFactory) informerfactory.InformerFactory { return nil })
	require.Nil(t, wrapped(factory))
}

func TestWrapInformerClients(t *testing.T) {
	t.Cleanup(func() { WrapInformerClients(nil) })
	root := clientbuilder.SimpleControllerClientBuilder{}
	require.Equal(t, root, informerClients(root), "without a wrapper it is upstream's")
	WrapInformerClients(func(clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder { return nil })
	require.Nil(t, informerClients(root))
}
