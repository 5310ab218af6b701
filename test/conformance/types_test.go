// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// widgets is the custom type among the types.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.conformance.fresh-kcm.io}
spec:
  group: conformance.fresh-kcm.io
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
`

// generallyAvailable is the form of a GA version's name.
var generallyAvailable = regexp.MustCompile(`^v[0-9]+$`)

// kindOfType is one type that the server serves.
type kindOfType struct {
	metav1.APIResource
	gvr          schema.GroupVersionResource
	subresources []string // those that can be patched and are, or stand for, the object
}

func (k kindOfType) gvk() schema.GroupVersionKind { return k.gvr.GroupVersion().WithKind(k.Kind) }

// String returns "group/version resource".
func (k kindOfType) String() string { return k.gvr.GroupVersion().String() + " " + k.gvr.Resource }

// path is where the collection of all namespaces is.
func (k kindOfType) path() string {
	if k.gvr.Group == "" {
		return "/api/" + k.gvr.Version + "/" + k.gvr.Resource
	}
	return "/apis/" + k.gvr.GroupVersion().String() + "/" + k.gvr.Resource
}

// stored is whether objects of the type can be written and have a resource version.
func (k kindOfType) stored() bool {
	return !slices.ContainsFunc([]string{"create", "get", "list", "watch", "update", "patch", "delete"}, func(verb string) bool {
		return !slices.Contains(k.Verbs, verb)
	})
}

// types returns the GA types that the server serves.
func (c *cluster) types(t *testing.T) []kindOfType {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(c.config)
	require.NoError(t, err)
	_, lists, err := d.ServerGroupsAndResources()
	require.NoError(t, err)
	types := map[string]*kindOfType{}
	var subresources []metav1.APIResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		// The groups of definitions are other tests', which change what is served.
		if !generallyAvailable.MatchString(gv.Version) || strings.HasSuffix(gv.Group, definitionGroup) {
			continue
		}
		for _, r := range list.APIResources {
			k := kindOfType{APIResource: r, gvr: gv.WithResource(r.Name)}
			if strings.Contains(r.Name, "/") {
				r.Name = k.String()
				subresources = append(subresources, r)
				continue
			}
			types[k.String()] = &k
		}
	}
	for _, sub := range subresources {
		i := strings.LastIndex(sub.Name, "/")
		parent := types[sub.Name[:i]]
		require.NotNil(t, parent, sub.Name)
		if slices.Contains(sub.Verbs, "patch") && (sub.Kind == parent.Kind || sub.Kind == "Scale") {
			parent.subresources = append(parent.subresources, sub.Name[i+1:])
		}
	}
	var out []kindOfType
	for _, name := range slices.Sorted(maps.Keys(types)) {
		slices.Sort(types[name].subresources)
		out = append(out, *types[name])
	}
	return out
}

// TestTypes: KEP-5504, "Conformance Tests", for every GA type that the server serves and a custom one. What it
// checked is the table of docs/conformance.md.
//
//conformance:kep-5504 Conformance Tests: a version from before a write is below the one after it, for every GA type and a custom one
//conformance:kep-5504 Conformance Tests: no version is above 2^128 - 1
//conformance:api-concepts API verbs: almost all types have GET, POST, PUT, PATCH and DELETE
//conformance:api-concepts Efficient detection of changes: a version is that of the persistence layer
//conformance:api-concepts Alternate representations of resources: every built-in type is taken in protobuf by POST and PUT, and is the same object as in JSON
//conformance:api-concepts Make a dry-run request: all built-in admission plugins support it
//conformance:api-concepts Efficient detection of changes: a watch that broke goes on from the last version it saw
//conformance:api-concepts Watch bookmarks: all up to their version has been sent
//conformance:api-concepts Collections: the kind of a list is that of its items with List
//conformance:api-concepts Resource deletion: an object with finalizers is marked, and goes with the last one
//conformance:api-concepts Resource deletion: with the last finalizer the object is gone from etcd
//conformance:api-concepts resourceVersion fields in metadata: an object's is of its last write, a list's is at or past each item's
//conformance:besides Initial events: a watch with sendInitialEvents begins with a state at the version or newer, and a bookmark says when that is complete
func TestTypes(t *testing.T) {
	c := shared(t)
	c.define(t, widgets)
	fixtures, reasons := loadFixtures(t)
	etcd := c.etcd(t)
	var mu sync.Mutex
	rows := map[string]string{}
	note := func(k kindOfType, row string) {
		mu.Lock()
		defer mu.Unlock()
		rows[k.String()] = row
	}
	types := c.types(t)
	t.Run("each", func(t *testing.T) {
		for _, k := range types {
			f, known := fixtures[k.gvk()]
			delete(fixtures, k.gvk())
			reason, excused := reasons[k.String()]
			delete(reasons, k.String())
			t.Run(k.String(), func(t *testing.T) {
				require.NotEqual(t, known, excused, "a type has a fixture in test/conformance/fixtures or a reason in unwritable.yaml there")
				if excused {
					require.False(t, k.stored(), "it can be written: it needs a fixture, not the reason %q", reason)
					note(k, "| "+strings.ReplaceAll(k.String(), " ", " | ")+" | none: "+reason+" | |")
					return
				}
				t.Parallel()
				l := newLife(t, c, etcd, k, f)
				l.run()
				note(k, l.row())
			})
		}
	})
	require.Empty(t, slices.Collect(maps.Keys(fixtures)), "fixtures of types that the server does not serve")
	require.Empty(t, reasons, "reasons for types that the server does not serve")
	if t.Failed() {
		return
	}
	writable := 0
	for _, row := range rows {
		if !strings.Contains(row, " none: ") {
			writable++
		}
	}
	table := []string{
		fmt.Sprintf("%d types are served, %d of them can be written.", len(rows), writable), "",
		"| Group and version | Type | Resource versions compared around | Watch |", "|---|---|---|---|",
	}
	for _, k := range types {
		table = append(table, rows[k.String()])
	}
	generated(t, "types", strings.Join(table, "\n"))
}

// life is what happens to one object of one type, with a watch beside it.
type life struct {
	*testing.T
	c         *cluster
	etcd      *clientv3.Client
	kind      kindOfType
	fixture   fixture
	namespace string
	name      string
	key       string // in etcd
	last      string // resource version of the last write
	writes    []string
	versions  []string // what the writes returned
	watched   *follower
}

func newLife(t *testing.T, c *cluster, etcd *clientv3.Client, k kindOfType, f fixture) *life {
	l := &life{T: t, c: c, etcd: etcd, kind: k, fixture: f}
	if k.Namespaced {
		l.namespace = c.namespace(t, strings.NewReplacer("/", "-", ".k8s.io", "", ".", "-", " ", "-").Replace("conformance-"+k.String()))
	}
	return l
}

func (l *life) object() *unstructured.Unstructured {
	o := (&unstructured.Unstructured{Object: l.fixture.Object}).DeepCopy()
	if o.GetName() == "" {
		o.SetName("conformance")
	}
	o.SetNamespace(l.namespace)
	o.SetFinalizers([]string{"fresh-kcm.io/conformance"})
	l.name = o.GetName()
	return o
}

func (l *life) row() string {
	watch := "order, initial events, bookmarks"
	if l.fixture.WithoutBookmarks != "" {
		watch = "order, initial events; no bookmarks: " + l.fixture.WithoutBookmarks
	}
	writes := []string{strings.Join(l.writes, ", ")}
	for _, sub := range l.kind.subresources {
		if reason := l.fixture.Without[sub]; reason != "" {
			writes = append(writes, "not "+sub+": "+reason)
		}
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", l.kind.gvr.GroupVersion(), l.kind.gvr.Resource, strings.Join(writes, "; "), watch)
}
