// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/pkg/controller/util/consistency"
)

func TestExemptControllers(t *testing.T) {
	for name, test := range map[string]struct {
		flags []string
		want  []string
		err   string
	}{
		"by default":               {},
		"by the name of metrics":   {flags: []string{"--stale-controller-consistency-exempt=podgc"}, want: []string{"podgc"}},
		"by that of --controllers": {flags: []string{"--stale-controller-consistency-exempt=pod-garbage-collector-controller"}, want: []string{"podgc"}},
		"unknown": {flags: []string{"--stale-controller-consistency-exempt=podgc,daemonset"},
			err: `invalid --stale-controller-consistency-exempt: "daemonset" is not one of attachdetach, cronjob, csrcleaner, deployment, disruption, endpointslice, garbagecollector, persistentvolume-binder, podgc, podgroup-protection, resourceclaim, resourcequota, service-cidr, tokencleaner, volumeattributesclass-protection`},
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

			asked := ""
			provider := except(got, func(controller string, _ map[schema.GroupResource]consistency.LastSyncRVGetter) consistency.ConsistencyStore {
				asked = controller
				return nil
			})
			store := provider("podgc", nil)
			require.Equal(t, len(test.want) == 0, asked == "podgc")
			require.Equal(t, len(test.want) > 0, store != nil)
			provider("daemonset", nil)
			require.Equal(t, "daemonset", asked)
		})
	}
}

// The names are those of controllers: an alias that --controllers takes, or the name without its ending.
func TestExemptibleControllersExist(t *testing.T) {
	for alias, name := range exemptible {
		if aliased, ok := app.ControllerAliases()[alias]; ok {
			require.Equal(t, name, aliased)
			continue
		}
		require.Equal(t, name, alias+"-controller")
		require.Contains(t, app.KnownControllers(), name)
	}
}
