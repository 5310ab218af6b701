// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	restclient "k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

func TestExemptControllers(t *testing.T) {
	for name, test := range map[string]struct {
		flags []string
		want  []string
		err   string
	}{
		"by default":                     {},
		"by the name of metrics":         {flags: []string{"--stale-controller-consistency-exempt=podgc,devicetainteviction"}, want: []string{names.PodGarbageCollectorController, names.DeviceTaintEvictionController}},
		"by that of --controllers":       {flags: []string{"--stale-controller-consistency-exempt=pod-garbage-collector-controller"}, want: []string{names.PodGarbageCollectorController}},
		"by an alias of --controllers":   {flags: []string{"--stale-controller-consistency-exempt=ttl"}, want: []string{names.TTLController}},
		"with a gate of upstream's":      {flags: []string{"--stale-controller-consistency-exempt=daemonset"}, want: []string{names.DaemonSetController}},
		"one that has no store of ours":  {flags: []string{"--stale-controller-consistency-exempt=root-ca-certificate-publisher-controller"}, want: []string{names.RootCACertificatePublisherController}},
		"unknown":                        {flags: []string{"--stale-controller-consistency-exempt=podgc,podcg"}, err: `invalid --stale-controller-consistency-exempt: "podcg" is no controller: name one as --controllers does, such as pod-garbage-collector-controller`},
		"all, which --controllers takes": {flags: []string{"--stale-controller-consistency-exempt=*"}, err: `invalid --stale-controller-consistency-exempt: "*" is no controller: name one as --controllers does, such as pod-garbage-collector-controller`},
	} {
		t.Run(name, func(t *testing.T) {
			var e exemption
			var fss cliflag.NamedFlagSets
			e.addTo(&fss)
			all := pflag.NewFlagSet("", pflag.ContinueOnError)
			for _, set := range fss.FlagSets {
				all.AddFlagSet(set)
			}
			require.NoError(t, all.Parse(test.flags))
			got, err := e.names()
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.ElementsMatch(t, test.want, got.UnsortedList())
		})
	}
}

// An exempt controller has the store that it has upstream.
func TestStoresOfExemptControllers(t *testing.T) {
	caches := map[schema.GroupResource]consistency.LastSyncRVGetter{}
	asked := ""
	provider := except(sets.New(names.PodGarbageCollectorController, names.DaemonSetController), func(controller string, _ map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
		asked = controller
		return nil
	})
	require.IsType(t, consistency.NewNoopConsistencyStore(), provider("podgc", caches))
	require.IsType(t, consistency.NewConsistencyStore(caches), provider("daemonset", caches))
	require.Empty(t, asked)
	require.Nil(t, provider("job", caches))
	require.Equal(t, "job", asked)
}

// Each controller that asks for a store can be named, by the name of its store, too.
func TestControllersWithStoresExist(t *testing.T) {
	for store, name := range controllersOf {
		require.Contains(t, app.KnownControllers(), name)
		if aliased, ok := app.ControllerAliases()[store]; ok {
			require.Equal(t, name, aliased)
		}
	}
	asks := regexp.MustCompile(`\bconsistency(?:util)?\.New(?:IfProvided|Dependents)?\("([a-z-]+)"`)
	found := sets.New[string]()
	require.NoError(t, filepath.WalkDir("../../_output/staging/kubernetes/pkg/controller", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, ask := range asks.FindAllSubmatch(source, -1) {
			found.Insert(string(ask[1]))
		}
		return err
	}))
	require.ElementsMatch(t, sets.KeySet(controllersOf).UnsortedList(), found.UnsortedList())
}

// The client of an exempt controller sends deletions as upstream's does; that of another does not.
func TestAnExemptControllerDeletesByName(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { exempted = nil })
	for _, exempt := range []bool{false, true} {
		exempted = sets.New[string]()
		if exempt {
			exempted.Insert(names.PodGarbageCollectorController)
		}
		builder := clients(t.Context(), clientbuilder.SimpleControllerClientBuilder{ClientConfig: &restclient.Config{Host: server.URL}})
		err := builder.ClientOrDie("pod-garbage-collector").CoreV1().Pods("ns").Delete(t.Context(), "a", metav1.DeleteOptions{})
		var refused *transport.PreconditionError
		require.Equal(t, !exempt, errors.As(err, &refused), "%v", err)
	}
}
