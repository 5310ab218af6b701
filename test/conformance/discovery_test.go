// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// oddGroup is of one definition, which changes what is served.
const oddGroup = "odd." + definitionGroup

// TestDiscovery: customresources-versioning, "Versions" and "Served": the order of versions with names of every
// form, and a definition that serves none.
func TestDiscovery(t *testing.T) {
	c := shared(t)
	all := func(served bool) string {
		var versions []string
		for i, name := range []string{"zeta", "v1alpha2", "v2", "v11beta2", "foo10", "v10", "v3beta1", "v1alpha10", "alpha", "v3"} {
			versions = append(versions, fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"schema":{"openAPIV3Schema":{"type":"object"}}}`, name, served, i == 0))
		}
		return "[" + strings.Join(versions, ",") + "]"
	}
	c.define(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%s}
spec: {group: %s, scope: Cluster, names: {kind: Thing, plural: things}, versions: %s}
`, oddGroup, oddGroup, all(true)))
	crd := "things." + oddGroup
	t.Cleanup(func() {
		require.NoError(t, c.patient.Resource(definitions).Delete(context.Background(), crd, metav1.DeleteOptions{}))
	})
	versions := func(t *testing.T) (names []string) {
		t.Helper()
		got := c.raw(t, "GET", "/apis/"+oddGroup, "")
		if got.code == http.StatusNotFound {
			return nil
		}
		for _, v := range got.json(t)["versions"].([]any) {
			names = append(names, v.(map[string]any)["version"].(string))
		}
		return names
	}
	want := []string{"v10", "v3", "v2", "v11beta2", "v3beta1", "v1alpha10", "v1alpha2", "alpha", "foo10", "zeta"}
	//conformance:crd-versions Versions: discovery orders them as they are written
	t.Run("order", func(t *testing.T) {
		eventually(t, "all versions to be found", func() (bool, error) { return len(versions(t)) == len(want), nil })
		require.Equal(t, want, versions(t))
		require.Equal(t, "v10", c.raw(t, "GET", "/apis/"+oddGroup, "").json(t)["preferredVersion"].(map[string]any)["version"])
	})
	//conformance:crd-versions Served: a definition that serves none is gone from discovery, and its objects stay
	t.Run("none is served", func(t *testing.T) {
		o := configMap("kept")
		o.SetAPIVersion(oddGroup + "/v10")
		o.SetKind("Thing")
		things := configMaps
		things.Group, things.Version, things.Resource = oddGroup, "v10", "things"
		_, err := c.patient.Resource(things).Create(t.Context(), o, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = c.patient.Resource(definitions).Patch(t.Context(), crd, types.MergePatchType, []byte(`{"spec":{"versions":`+all(false)+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		eventually(t, "the group to be gone from discovery", func() (bool, error) {
			return versions(t) == nil && !strings.Contains(string(c.raw(t, "GET", "/apis", "").body), oddGroup), nil
		})
		require.Equal(t, http.StatusNotFound, c.raw(t, "GET", "/apis/"+oddGroup+"/v10/things", "").code)
		stored, err := c.etcd(t).Get(t.Context(), "/registry/"+oddGroup+"/things/kept")
		require.NoError(t, err)
		require.Len(t, stored.Kvs, 1, "what is stored stays")
		_, err = c.patient.Resource(definitions).Patch(t.Context(), crd, types.MergePatchType, []byte(`{"spec":{"versions":`+all(true)+`}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		eventually(t, "it to be served again", func() (bool, error) {
			return c.raw(t, "GET", "/apis/"+oddGroup+"/v10/things/kept", "").code == http.StatusOK, nil
		})
	})
}
