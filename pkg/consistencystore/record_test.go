// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// call is a call of a store.
type call struct {
	owner    types.NamespacedName
	ownerUID types.UID
	resource string
	rv       string               // of a write
	key      types.NamespacedName // of a deletion
	uid      types.UID
	fence    bool // rv is one that a write was made at
}

// deafStore is a store of ours that takes nothing into account.
type deafStore struct {
	consistency.NoopConsistencyStore
}

var _ transport.Store = &deafStore{}

func (deafStore) Sending(schema.GroupResource) rvtracker.Sent { return rvtracker.Sent{} }
func (deafStore) Wrote(types.NamespacedName, types.UID, schema.GroupResource, metav1.ObjectMeta, rvtracker.Sent) {
}
func (deafStore) Deleted(types.NamespacedName, types.UID, schema.GroupResource, types.NamespacedName, types.UID) {
}
func (deafStore) Fenced(schema.GroupResource, string, rvtracker.Sent) {}
func (deafStore) Withholds(types.NamespacedName, types.UID, transport.Write, func() metav1.ObjectMeta) (there bool, err error) {
	return false, nil
}
func (deafStore) Recorded(types.NamespacedName, transport.Write)       {}
func (deafStore) Failed(types.NamespacedName, transport.Write)         {}
func (deafStore) Untracked(types.NamespacedName, types.UID)            {}
func (deafStore) Redecides(transport.Write, types.NamespacedName) bool { return false }
func (deafStore) RetryAfter(types.NamespacedName, transport.Write, time.Duration) transport.PutOff {
	return transport.PutOff{}
}

func (deafStore) Unsettled(types.NamespacedName, types.UID, schema.GroupResource, time.Duration) (again transport.PutOff, tracked bool) {
	return transport.PutOff{}, false
}

// listener is a consistency store that remembers its calls.
type listener struct {
	deafStore
	calls []call
}

func (*listener) Sending(schema.GroupResource) rvtracker.Sent { return rvtracker.Sent{At: time.Now()} }

func (l *listener) Wrote(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, answer metav1.ObjectMeta, _ rvtracker.Sent) {
	l.WroteAt(owner, ownerUID, resource, answer.ResourceVersion)
}

func (l *listener) WroteAt(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, rv string) {
	l.calls = append(l.calls, call{owner: owner, ownerUID: ownerUID, resource: resource.String(), rv: rv})
}

func (l *listener) Deleted(owner types.NamespacedName, ownerUID types.UID, resource schema.GroupResource, key types.NamespacedName, uid types.UID) {
	l.calls = append(l.calls, call{owner: owner, ownerUID: ownerUID, resource: resource.String(), key: key, uid: uid})
}

func (l *listener) Fenced(resource schema.GroupResource, rv string, sent rvtracker.Sent) {
	if !sent.At.IsZero() {
		l.calls = append(l.calls, call{resource: resource.String(), rv: rv, fence: true})
	}
}

func (l *listener) Failed(types.NamespacedName, transport.Write) {}

func (l *listener) Untracked(owner types.NamespacedName, ownerUID types.UID) {
	l.calls = append(l.calls, call{owner: owner, ownerUID: ownerUID})
}

// answering returns a client, made as the controllers' clients are, of a server that gives one answer.
func answering(t *testing.T, contentType string, code int, object runtime.Object) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), contentType)
		if !ok {
			t.Errorf("no serializer for %s", contentType)
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		encoder := scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersions{corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, metav1.SchemeGroupVersion})
		if err := encoder.Encode(object, w); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	builder := transport.Clients(clientbuilder.SimpleControllerClientBuilder{ClientConfig: &rest.Config{
		Host:          server.URL,
		ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType},
	}}, nil)
	client, err := builder.Client("test")
	require.NoError(t, err)
	return client
}

func TestWritesAreRecorded(t *testing.T) {
	owner, ownerUID := types.NamespacedName{Namespace: "ns", Name: "owner"}, types.UID("owner-uid")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod-uid", ResourceVersion: "7"}}
	gone := &metav1.Status{Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: "pod", Kind: "pods", UID: "pod-uid"}}
	terminating := pod.DeepCopy()
	terminating.DeletionTimestamp = new(metav1.Now())
	told := &metav1.Status{Status: metav1.StatusSuccess, ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Details: gone.Details}
	silent := &metav1.Status{Status: metav1.StatusSuccess}
	wrote := []call{{owner: owner, ownerUID: ownerUID, resource: "pods", rv: "7"}}
	deleted := []call{{owner: owner, ownerUID: ownerUID, resource: "pods", key: types.NamespacedName{Namespace: "ns", Name: "pod"}, uid: "pod-uid"}}

	untracked := []call{{owner: owner, ownerUID: ownerUID}}
	deletePod := func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Pods("ns").Delete(ctx, "pod", metav1.DeleteOptions{})
	}
	deletePods := func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Pods("ns").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}

	tests := map[string]struct {
		answer  runtime.Object
		code    int
		do      func(ctx context.Context, c kubernetes.Interface) error
		want    []call
		wantErr bool
	}{
		"create": {answer: pod, do: func(ctx context.Context, c kubernetes.Interface) error {
			got, err := c.CoreV1().Pods("ns").Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
			require.Equal(t, types.UID("pod-uid"), got.UID, "the controller still gets the answer")
			return err
		}, want: append(wrote[:1:1], call{resource: "pods", rv: "7", fence: true})},
		"update status": {answer: pod, do: func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Pods("ns").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			return err
		}, want: wrote},
		"update of an older one": {answer: pod, do: func(ctx context.Context, c kubernetes.Interface) error {
			older := pod.DeepCopy()
			older.ResourceVersion = "6"
			_, err := c.CoreV1().Pods("ns").UpdateStatus(ctx, older, metav1.UpdateOptions{})
			return err
		}, want: append(wrote[:1:1], call{resource: "pods", rv: "7", fence: true})},
		"update of any": {answer: pod, do: func(ctx context.Context, c kubernetes.Interface) error {
			anyOf := pod.DeepCopy()
			anyOf.ResourceVersion = ""
			_, err := c.CoreV1().Pods("ns").Update(ctx, anyOf, metav1.UpdateOptions{})
			return err
		}, want: wrote},
		"patch": {answer: pod, do: func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Pods("ns").Patch(ctx, "pod", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{})
			return err
		}, want: wrote},
		"graceful delete":                     {answer: terminating, do: deletePod, want: append(wrote[:1:1], deleted...)},
		"immediate delete":                    {answer: gone, do: deletePod, want: deleted},
		"immediate delete, version told":      {answer: told, do: deletePod, want: []call{{owner: owner, ownerUID: ownerUID, resource: "pods", rv: "9"}, deleted[0]}},
		"immediate delete, object as it was":  {answer: pod, do: deletePod, want: append(wrote[:1:1], deleted...)},
		"immediate delete, nothing told":      {answer: silent, do: deletePod, want: untracked},
		"delete of what cannot be waited for": {answer: silent, do: deletePods, want: untracked},
		"dry run": {answer: pod, do: func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Pods("ns").Create(ctx, &corev1.Pod{}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}},
		"read": {answer: pod, do: func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Pods("ns").Get(ctx, "pod", metav1.GetOptions{})
			return err
		}},
		"refused": {answer: &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonConflict, Code: http.StatusConflict}, code: http.StatusConflict,
			do: func(ctx context.Context, c kubernetes.Interface) error {
				_, err := c.CoreV1().Pods("ns").Update(ctx, pod, metav1.UpdateOptions{})
				return err
			}, wantErr: true},
		"not for an owner": {answer: pod, do: func(_ context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Pods("ns").Create(context.Background(), &corev1.Pod{}, metav1.CreateOptions{})
			return err
		}},
	}
	for name, tc := range tests {
		for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			t.Run(name+" "+contentType, func(t *testing.T) {
				code := tc.code
				if code == 0 {
					code = http.StatusOK
				}
				store := &listener{}
				ctx := consistency.WithOwner(t.Context(), store, owner, ownerUID)
				err := tc.do(ctx, answering(t, contentType, code, tc.answer))
				require.Equal(t, tc.wantErr, err != nil, "error %v", err)
				require.Equal(t, tc.want, store.calls)
			})
		}
	}
}

// failures is a store that counts the writes that fail.
type failures struct {
	deafStore
	n int
}

func (f *failures) Failed(types.NamespacedName, transport.Write) { f.n++ }

// What was to be deleted and is gone already is no write that failed, where upstream takes it for success.
func TestADeletionOfWhatIsGoneHasNotFailed(t *testing.T) {
	deletePod := func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Pods("ns").Delete(ctx, "a", metav1.DeleteOptions{})
	}
	for name, tc := range map[string]struct {
		code  int32
		do    func(ctx context.Context, c kubernetes.Interface) error
		fails int
	}{
		"a pod is gone": {http.StatusNotFound, deletePod, 0},
		"a ReplicaSet is gone": {http.StatusNotFound, func(ctx context.Context, c kubernetes.Interface) error {
			return c.AppsV1().ReplicaSets("ns").Delete(ctx, "a", metav1.DeleteOptions{})
		}, 0},
		"a Job is gone": {http.StatusNotFound, func(ctx context.Context, c kubernetes.Interface) error {
			return c.BatchV1().Jobs("ns").Delete(ctx, "a", metav1.DeleteOptions{})
		}, 1},
		"a pod to update is gone": {http.StatusNotFound, func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Pods("ns").Update(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.UpdateOptions{})
			return err
		}, 1},
		"the pod is another one": {http.StatusConflict, deletePod, 1},
	} {
		t.Run(name, func(t *testing.T) {
			store := &failures{}
			ctx := consistency.WithOwner(t.Context(), store, types.NamespacedName{Namespace: "ns", Name: "owner"}, "uid")
			err := tc.do(ctx, answering(t, runtime.ContentTypeJSON, int(tc.code), &metav1.Status{Status: metav1.StatusFailure, Code: tc.code}))
			var status apierrors.APIStatus
			require.ErrorAs(t, err, &status)
			require.Equal(t, tc.code, status.Status().Code, "the controller still gets the answer")
			require.Equal(t, tc.fails, store.n)
		})
	}
}

// withholder is a store that lets no write through but what is there already, and remembers what it was asked about.
type withholder struct {
	deafStore
	there bool
	asked []string
}

func (w *withholder) Withholds(_ types.NamespacedName, _ types.UID, what transport.Write, sent func() metav1.ObjectMeta) (there bool, err error) {
	object := sent()
	w.asked = append(w.asked, strings.TrimSpace(what.Method+" "+object.Name+" "+object.ResourceVersion))
	if w.there {
		return true, nil
	}
	return false, &heldError{}
}

// A write that is withheld is not sent, and its owner is not tried again by its queue.
func TestAWriteThatIsWithheldIsNotSent(t *testing.T) {
	store := &withholder{}
	ctx := consistency.WithOwner(t.Context(), store, types.NamespacedName{Namespace: "ns", Name: "owner"}, "uid")
	client := answering(t, runtime.ContentTypeProtobuf, http.StatusOK, &appsv1.Deployment{})
	_, err := client.AppsV1().Deployments("ns").UpdateStatus(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "5"}}, metav1.UpdateOptions{})
	require.True(t, consistency.Parked(err), "%v", err)
	_, err = client.AppsV1().ControllerRevisions("ns").Create(ctx, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
	require.True(t, consistency.Parked(err), "%v", err)
	require.True(t, consistency.Parked(client.AppsV1().ControllerRevisions("ns").Delete(ctx, "c", metav1.DeleteOptions{})))
	require.Equal(t, []string{"PUT a 5", "POST b", "DELETE"}, store.asked)
	store.there = true
	_, err = client.AppsV1().ControllerRevisions("ns").Create(ctx, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	require.ErrorContains(t, err, `controllerrevisions.apps "b" already exists`)
}

// held is a cache at a version, with one object.
type held struct {
	version
	object metav1.Object
}

func (h *held) GetByKey(key string) (any, bool, error) {
	return h.object, key == h.object.GetNamespace()+"/"+h.object.GetName(), nil
}

// counted is a fencer that nobody should need.
type counted struct{ fences int }

func (c *counted) Fence(context.Context, schema.GroupResource) (string, error) {
	c.fences++
	return "100", nil
}

// An update that changes nothing is answered with the version that the object has had for long. That is no sign of
// resource versions that went backward, and costs nothing.
func TestAnUpdateThatChangesNothingIsNoWrite(t *testing.T) {
	owner := types.NamespacedName{Namespace: "ns", Name: "owner"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod-uid", ResourceVersion: "7"}}
	for name, tc := range map[string]struct {
		has     corev1.Pod
		suspect bool
	}{
		"unchanged":        {has: *pod},
		"another pod":      {has: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "another", ResourceVersion: "7"}}, suspect: true},
		"went backward":    {has: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "pod-uid", ResourceVersion: "9"}}, suspect: true},
		"not in the cache": {has: corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"}}, suspect: true},
	} {
		t.Run(name, func(t *testing.T) {
			cache := &held{version: "50", object: &tc.has}
			store := newStore(rvtracker.New(rvtracker.Options{Fencer: &counted{}}), "test", map[schema.GroupResource]consistency.LastSyncRVGetter{pods: cache})
			client := answering(t, runtime.ContentTypeProtobuf, http.StatusOK, pod)
			_, err := client.CoreV1().Pods("ns").UpdateStatus(consistency.WithOwner(t.Context(), store, owner, "uid"), pod, metav1.UpdateOptions{})
			require.NoError(t, err)
			require.Equal(t, tc.suspect, store.EnsureReady(owner) != nil)
			require.NoError(t, client.CoreV1().Pods("ns").Delete(consistency.WithOwner(t.Context(), store, types.NamespacedName{Name: "other"}, "uid"), "pod", metav1.DeleteOptions{}))
			// A deletion may be answered with what was before it: it is awaited by UID, and raises no suspicion.
			err = store.EnsureReady(types.NamespacedName{Name: "other"})
			if tc.has.UID == pod.UID {
				require.ErrorContains(t, err, "waits for the deletion")
			} else {
				require.NoError(t, err)
			}
		})
	}
}
