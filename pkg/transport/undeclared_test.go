// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/fresh-kcm/fresh-kcm/pkg/metrics"
)

func TestUndeclaredWritesAreCountedAndSent(t *testing.T) {
	metrics.Register()
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
	remove("daemon-set-controller")
	remove("ttl-controller")
	remove("ttl-controller")
	const name = "stale_controller_undeclared_writes_total"
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP `+name+` [ALPHA] Number of writes that docs/coverage.md does not list, by the client and the verb. They are sent all the same.
# TYPE `+name+` counter
`+name+`{client="ttl-controller",verb="delete"} 2
`), name))
	require.Equal(t, 3, got)
}
