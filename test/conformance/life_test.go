// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

func (l *life) client() dynamic.ResourceInterface {
	if l.namespace != "" {
		return l.c.any.Resource(l.kind.gvr).Namespace(l.namespace)
	}
	return l.c.any.Resource(l.kind.gvr)
}

// run writes one object in every way, from its creation to its end.
func (l *life) run() {
	empty := l.list()
	l.last = empty.GetResourceVersion()
	l.watched = follow(l.T, l.c.any.Resource(l.kind.gvr), l.last)

	l.rehearse()
	l.write("create", func() (*unstructured.Unstructured, error) {
		return l.client().Create(l.Context(), l.object(), metav1.CreateOptions{})
	})
	l.write("update", l.update)
	if l.protobuf() {
		l.write("update in protobuf", l.updateInProtobuf)
	}
	l.write("patch", func() (*unstructured.Unstructured, error) {
		return l.patch(types.MergePatchType, map[string]any{"metadata": labelled("patch")})
	})
	l.write("apply", func() (*unstructured.Unstructured, error) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(l.kind.gvk())
		o.SetName(l.name)
		o.SetLabels(map[string]string{"conformance-apply": "apply"})
		return l.client().Apply(l.Context(), l.name, o, metav1.ApplyOptions{FieldManager: "conformance"})
	})
	known := slices.Concat(slices.Collect(maps.Keys(l.fixture.Subresources)), slices.Collect(maps.Keys(l.fixture.Without)))
	require.ElementsMatch(l, l.kind.subresources, known, "each subresource has a patch in the fixture or a reason")
	for _, sub := range l.kind.subresources {
		if l.fixture.Without[sub] != "" {
			continue
		}
		l.write(sub, func() (*unstructured.Unstructured, error) {
			return l.patch(types.MergePatchType, l.fixture.Subresources[sub], sub)
		})
	}
	l.initialEvents()
	l.delete()
	l.watched.finish(l.name, l.namespace, l.versions, l.fixture.WithoutBookmarks == "")
}

// write does one write: the resource version it returns is greater than every earlier one, get and list show
// the object at it, and the list is at it or past it. Others may write some types too.
func (l *life) write(name string, do func() (*unstructured.Unstructured, error)) {
	l.Helper()
	o, err := do()
	require.NoError(l, err, name)
	rv := o.GetResourceVersion()
	require.NoError(l, before(l.last, rv), name)

	got, err := l.client().Get(l.Context(), l.name, metav1.GetOptions{})
	require.NoError(l, err)
	require.NoError(l, notAfter(rv, got.GetResourceVersion()), "get after %s", name)
	list := l.list()
	i := slices.IndexFunc(list.Items, func(item unstructured.Unstructured) bool { return item.GetName() == l.name })
	require.GreaterOrEqual(l, i, 0, "list after %s lacks the object", name)
	require.NoError(l, notAfter(rv, list.Items[i].GetResourceVersion()), "item of a list after %s", name)
	l.inEtcd(name, rv)
	l.last = rv
	l.writes = append(l.writes, name)
	l.versions = append(l.versions, rv)
}

// inEtcd looks at etcd as it was at the resource version of a write: just the object was written then.
func (l *life) inEtcd(name, rv string) {
	l.Helper()
	revision, err := strconv.ParseInt(rv, 10, 64)
	require.NoError(l, err)
	then, err := l.etcd.Get(l.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithRev(revision),
		clientv3.WithMinModRev(revision), clientv3.WithMaxModRev(revision))
	require.NoError(l, err)
	require.Len(l, then.Kvs, 1, "what etcd wrote at the version of %s", name)
	l.key = string(then.Kvs[0].Key)
	require.Equal(l, l.name, path.Base(l.key))
	if l.namespace != "" {
		require.Equal(l, l.namespace, path.Base(path.Dir(l.key)))
	}
}

// list reads the collection: no item is newer than it, and its kind is that of the type with List.
func (l *life) list() *unstructured.UnstructuredList {
	l.Helper()
	list, err := l.client().List(l.Context(), metav1.ListOptions{})
	require.NoError(l, err)
	require.Equal(l, l.kind.Kind+"List", list.GetKind())
	require.NoError(l, inRange(list.GetResourceVersion()))
	if l.last != "" {
		require.NoError(l, notAfter(l.last, list.GetResourceVersion()), "a list after a write is at it or past it")
	}
	for _, item := range list.Items {
		require.NoError(l, notAfter(item.GetResourceVersion(), list.GetResourceVersion()), "%s in its list", item.GetName())
	}
	return list
}

func (l *life) update() (*unstructured.Unstructured, error) {
	return l.updates("update", func(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return l.client().Update(l.Context(), o, metav1.UpdateOptions{})
	})
}

// updates labels the object as it is and puts that, and again if others have changed it meanwhile.
func (l *life) updates(label string, put func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (o *unstructured.Unstructured, err error) {
	return o, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if o, err = l.client().Get(l.Context(), l.name, metav1.GetOptions{}); err != nil {
			return err
		}
		o.SetLabels(map[string]string{"conformance-" + label: label})
		o, err = put(o)
		return err
	})
}

func labelled(with string) map[string]any {
	return map[string]any{"labels": map[string]any{"conformance-" + with: with}}
}

func (l *life) patch(kind types.PatchType, patch map[string]any, subresource ...string) (*unstructured.Unstructured, error) {
	raw, err := json.Marshal(patch)
	require.NoError(l, err)
	return l.client().Patch(l.Context(), l.name, kind, raw, metav1.PatchOptions{}, subresource...)
}

// delete marks the object and then takes its finalizers away.
func (l *life) delete() {
	l.write("mark for deletion", func() (*unstructured.Unstructured, error) {
		background := metav1.DeletePropagationBackground
		if err := l.client().Delete(l.Context(), l.name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			return nil, err
		}
		o, err := l.client().Get(l.Context(), l.name, metav1.GetOptions{})
		if err == nil {
			require.NotNil(l, o.GetDeletionTimestamp(), "the finalizer keeps it")
		}
		return o, err
	})
	if l.kind.gvr.Resource == "namespaces" {
		l.write("finalize", func() (*unstructured.Unstructured, error) {
			o, err := l.client().Get(l.Context(), l.name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			require.NoError(l, unstructured.SetNestedSlice(o.Object, nil, "spec", "finalizers"))
			return l.client().Update(l.Context(), o, metav1.UpdateOptions{}, "finalize")
		})
	}
	_, err := l.patch(types.MergePatchType, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	require.NoError(l, err)
	_, err = l.client().Get(l.Context(), l.name, metav1.GetOptions{})
	require.True(l, apierrors.IsNotFound(err), "%v", err)
	list := l.list()
	require.False(l, slices.ContainsFunc(list.Items, func(item unstructured.Unstructured) bool { return item.GetName() == l.name }))
	require.NoError(l, before(l.last, list.GetResourceVersion()), "a deletion has a resource version of its own")
	left, err := l.etcd.Get(l.Context(), l.key)
	require.NoError(l, err)
	require.Zero(l, left.Count, "%s is still in etcd", l.key)
	l.writes = append(l.writes, "delete")
}

// initialEvents: a watch that begins with the state says with a bookmark when that is complete, and is then
// no older than anything it has sent or was written before.
func (l *life) initialEvents() {
	yes, seconds := true, int64(30)
	w, err := l.c.any.Resource(l.kind.gvr).Watch(l.Context(), metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		TimeoutSeconds: &seconds,
	})
	require.NoError(l, err)
	defer w.Stop()
	found, complete := false, false
	var sent []string
	for e := range w.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		require.True(l, ok, "%v", apierrors.FromObject(e.Object))
		if e.Type == watch.Bookmark {
			require.Equal(l, "true", o.GetAnnotations()[metav1.InitialEventsAnnotationKey])
			for _, rv := range append(sent, l.last) {
				require.NoError(l, notAfter(rv, o.GetResourceVersion()), "the bookmark is behind")
			}
			complete = true
			break
		}
		require.Equal(l, watch.Added, e.Type)
		sent = append(sent, o.GetResourceVersion())
		found = found || o.GetName() == l.name && o.GetNamespace() == l.namespace
	}
	require.True(l, complete, "no bookmark says that the initial events are complete")
	require.True(l, found, "the object is not among the initial events")
}
