// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
	"github.com/fresh-kcm/fresh-kcm/test/lag"
)

// history is what the only writer of a namespace's configmaps has done: a server that answers at some resource
// version must show the state that was then.
type history struct {
	c         *cluster
	namespace string
	versions  []string            // of the writes, rising
	states    []map[string]string // after each write: the objects' resource versions by name
}

func newHistory(t *testing.T, c *cluster, namespace string) *history {
	t.Helper()
	return &history{c: c, namespace: c.namespace(t, namespace)}
}

func (h *history) client(c *cluster) dynamic.ResourceInterface {
	return c.any.Resource(configMaps).Namespace(h.namespace)
}

// write creates the configmap, or changes it if it is there, and returns its resource version.
func (h *history) write(t *testing.T, name string) string {
	t.Helper()
	state := map[string]string{}
	if n := len(h.states); n > 0 {
		state = maps.Clone(h.states[n-1])
	}
	o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"write": strconv.Itoa(len(h.versions))}}}
	o.SetAPIVersion("v1")
	o.SetKind("ConfigMap")
	o.SetName(name)
	var err error
	if state[name] == "" {
		o, err = h.client(h.c).Create(t.Context(), o, metav1.CreateOptions{})
	} else {
		o, err = h.client(h.c).Update(t.Context(), o, metav1.UpdateOptions{})
	}
	require.NoError(t, err)
	state[name] = o.GetResourceVersion()
	h.versions, h.states = append(h.versions, o.GetResourceVersion()), append(h.states, state)
	return o.GetResourceVersion()
}

// newest is the resource version of the last write.
func (h *history) newest() string { return h.versions[len(h.versions)-1] }

// at returns the state at a resource version that is not older than the first write's.
func (h *history) at(t *testing.T, rv string) map[string]string {
	t.Helper()
	for i := len(h.versions) - 1; i >= 0; i-- {
		if notAfter(h.versions[i], rv) == nil {
			return h.states[i]
		}
	}
	require.Fail(t, "a state before the history", "resource version %s, the first is %s", rv, h.versions[0])
	return nil
}

// future is a resource version that the server will not reach.
func (h *history) future(t *testing.T) string { return plus(t, h.newest(), 1_000_000) }

func plus(t *testing.T, rv string, n uint64) string {
	t.Helper()
	v, err := strconv.ParseUint(rv, 10, 64)
	require.NoError(t, err)
	return strconv.FormatUint(v+n, 10)
}

// world has configmaps, an apiserver that has seen all of their changes, and one that has not: what etcd tells
// it of them is held back since older.
type world struct {
	*history
	older   string
	servers map[string]*cluster
	etcd    *lag.Proxy
}

const (
	current = "current"
	lagging = "lagging"
)

func newWorld(t *testing.T, namespace string) *world {
	t.Helper()
	c := shared(t)
	w := &world{history: newHistory(t, c, namespace)}
	var err error
	w.etcd, err = lag.Start(c.EtcdURL(), c.pkiDir())
	require.NoError(t, err)
	t.Cleanup(w.etcd.Close)
	server, err := c.StartAPIServer(t.Context(), controlplane.ProcessOptions{Args: []string{"--etcd-servers-overrides=/configmaps#" + w.etcd.URL()}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Kill()) })
	w.servers = map[string]*cluster{current: c, lagging: c.at(t, server.AdminConfig())}

	for i := range 5 {
		w.older = w.write(t, fmt.Sprintf("c%d", i))
	}
	eventually(t, "the second apiserver's cache to have everything", func() (bool, error) {
		list, err := w.client(w.servers[lagging]).List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		return err == nil && notAfter(w.older, list.GetResourceVersion()) == nil, err
	})
	w.etcd.Hold()
	for _, name := range []string{"c0", "c5", "c2", "c0"} {
		w.write(t, name)
	}
	eventually(t, "something to be held back", func() (bool, error) { return w.etcd.Held() > 0, nil })
	w.settle(t)
	return w
}

// settle returns when the first apiserver's cache has every write: it waits for that to answer.
func (w *world) settle(t *testing.T) {
	t.Helper()
	_, err := w.client(w.c).List(t.Context(), metav1.ListOptions{ResourceVersion: w.newest(), ResourceVersionMatch: notOlderMatch})
	require.NoError(t, err)
}

// isTooLarge checks the answer for a resource version that the server does not have yet.
func isTooLarge(t *testing.T, err error) {
	t.Helper()
	require.True(t, apierrors.IsTimeout(err), "%v", err)
	status := apierrors.APIStatus(nil)
	require.ErrorAs(t, err, &status)
	require.EqualValues(t, 504, status.Status().Code)
	require.True(t, apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), "%v", err)
	require.Contains(t, err.Error(), "Too large resource version")
	delay, ok := apierrors.SuggestsClientDelay(err)
	require.True(t, ok && delay > 0, "the client is told when to ask again")
}

// isInvalid checks the answer for parameters that do not go together.
func isInvalid(t *testing.T, err error) {
	t.Helper()
	require.True(t, apierrors.IsInvalid(err) || apierrors.IsBadRequest(err), "%v", err)
}

func namesOf(state map[string]string) []string { return slices.Sorted(maps.Keys(state)) }

// itemsOf returns the resource versions of a list's items by name, which must come in order.
func itemsOf(t *testing.T, lists ...*unstructured.UnstructuredList) map[string]string {
	t.Helper()
	out := map[string]string{}
	var names []string
	for _, list := range lists {
		for _, item := range list.Items {
			names = append(names, item.GetName())
			out[item.GetName()] = item.GetResourceVersion()
		}
	}
	require.Equal(t, namesOf(out), names, "each item once, by name")
	return out
}
