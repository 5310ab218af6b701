// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
)

func TestUndeclaredWritesAreCountedAndSent(t *testing.T) {
	var got int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		got++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}))
	t.Cleanup(server.Close)
	builder := Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: server.URL}}, nil)
	remove := func(client string) {
		require.NoError(t, builder.ClientOrDie(client).CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	}
	undeclared := func() map[string]float64 { return counted(t, "stale_controller_undeclared_writes_total") }
	before := undeclared()
	remove("daemon-set-controller")
	remove("ttl-controller")
	remove("ttl-controller")
	after := undeclared()
	require.Equal(t, before["ttl-controller"]+2, after["ttl-controller"])
	require.Equal(t, before["daemon-set-controller"], after["daemon-set-controller"])
	require.Equal(t, 3, got)
}
