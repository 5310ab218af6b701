// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessmonitor"
	"github.com/fresh-kcm/fresh-kcm/pkg/stalenessz"
	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// converter is a conversion webhook: a size in v2 is ten times that in v1.
type converter struct {
	mu sync.Mutex
	// down says that it fails; held, until when it keeps its answers.
	down     bool
	held     chan struct{}
	waiting  int
	answered int
}

const v2Size = 10

func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "not a ConversionReview", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	down, held := c.down, c.held
	c.waiting++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting--
		c.answered++
	}()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	if down {
		review.Response.Result = metav1.Status{Status: metav1.StatusFailure, Message: "not today"}
	} else {
		for _, raw := range review.Request.Objects {
			review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, convert(raw, review.Request.DesiredAPIVersion))
		}
	}
	review.Request = nil
	w.Header().Set("Content-Type", jsonType)
	_ = json.NewEncoder(w).Encode(review)
}

func convert(raw runtime.RawExtension, to string) runtime.RawExtension {
	var o unstructured.Unstructured
	if o.UnmarshalJSON(raw.Raw) != nil || o.GetAPIVersion() == to {
		return raw
	}
	size, found, _ := unstructured.NestedInt64(o.Object, "spec", "size")
	if strings.HasSuffix(to, "/v2") {
		size *= v2Size
	} else {
		size /= v2Size
	}
	if found {
		_ = unstructured.SetNestedField(o.Object, size, "spec", "size")
	}
	o.SetAPIVersion(to)
	out, _ := o.MarshalJSON()
	return runtime.RawExtension{Raw: out}
}

// set changes what the webhook does from now on; what it has kept is answered.
func (c *converter) set(down, hold bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
	if c.held != nil {
		close(c.held)
		c.held = nil
	}
	if hold {
		c.held = make(chan struct{})
	}
}

func (c *converter) isWaiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// converted is a resource whose objects are stored in v1 and followed in v2, so that all that our garbage collector,
// monitor and proofs see of it has been converted.
type converted struct {
	*testing.T
	*definition
	kcm  *controlplane.KCM
	hook *converter
	maps *history
}

// TestConversion: customresources-versioning, "Goals": a conversion webhook that works, is slow and fails, under our
// garbage collector, monitor and proofs. The other resources go on as if there were none. A dependent of an
// object that cannot be converted is kept, since nobody knows that its owner is gone.
func TestConversion(t *testing.T) {
	c := own(t, controlplane.Options{})
	v := &converted{T: t, hook: &converter{}, maps: newHistory(t, c, "converted")}
	v.definition = newDefinition(t, c, "Pipe", versionOf("v1", true, true, 1000), versionOf("v2", true, false, 10000))
	conversion, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": map[string]any{
		"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []string{"v1"}, "clientConfig": map[string]any{"url": c.hooks(t, v.hook), "caBundle": c.CAData()},
		},
	}}})
	require.NoError(t, err)
	// What is kept is answered before the server is closed.
	t.Cleanup(func() { v.hook.set(false, false) })
	_, err = c.patient.Resource(definitions).Patch(t.Context(), v.name(), types.MergePatchType, conversion, metav1.PatchOptions{})
	require.NoError(t, err)
	v.create(t, "v1", "first", 1)
	eventually(t, "the conversion to be in force", func() (bool, error) { return v.sizes(t, "v2")["first"] == v2Size, nil })
	began := time.Now()
	v.kcm, err = c.StartKCM(t.Context(), controlplane.KCMOptions{Arm: controlplane.ArmP})
	require.NoError(t, err)
	v.complete()
	t.Logf("the cache was complete after %.1fs", time.Since(began).Seconds())

	//conformance:crd-versions Goals: conversion by a webhook: garbage collector, monitor and proofs go on with one that works
	t.Run("works", func(t *testing.T) {
		owner := v.create(t, "v2", "owner", 20)
		v.dependent(t, "of-owner", owner, "v2")
		kept := v.create(t, "v1", "kept", 3)
		v.dependent(t, "of-kept", kept, "v2")
		require.Equal(t, map[string]int64{"first": 1, "owner": 2, "kept": 3}, v.sizes(t, "v1"))
		v.remove(t, "owner")
		v.gone(t, "of-owner")
		v.there(t, "of-kept")
	})
	//conformance:crd-versions Goals: one that is slow or fails is the affair of its own resource alone
	t.Run("slow", func(t *testing.T) { v.besides(t, "slow", false, true) })
	//conformance:crd-versions Goals: one that is slow or fails is the affair of its own resource alone
	t.Run("fails", func(t *testing.T) { v.besides(t, "fails", true, false) })
	v.there(t, "of-kept")
}

// besides has the webhook do as it is told, and looks at the others meanwhile.
func (v *converted) besides(t *testing.T, name string, down, hold bool) {
	from := time.Now()
	v.hook.set(down, hold)
	// An owner that the collector's cache lacks, since it cannot be converted: it is looked up on the server, in v2.
	owner := v.create(t, "v1", "owner-"+name, 5)
	lacks := time.Now()
	v.dependent(t, "of-"+name, owner, "v2")
	if hold {
		eventually(t, "a conversion to be kept", func() (bool, error) { return v.hook.isWaiting(), nil })
	}
	within(t, discovered, "the collector to have looked the owner up in vain, or to wait for the answer", func() (bool, error) {
		return (hold && v.hook.isWaiting()) || v.looked(t, from, owner.GetName()) > 0, nil
	})

	t.Logf("the owner was looked up after %.1fs", time.Since(from).Seconds())
	began := time.Now()
	a := v.plain(t, "a-"+name)
	v.dependent(t, "of-a-"+name, a, "")
	v.removePlain(t, a.GetName(), metav1.DeletePropagationBackground)
	v.gone(t, "of-a-"+name)
	t.Logf("a deletion in the background took %.1fs", time.Since(began).Seconds())
	began = time.Now()
	b := v.plain(t, "b-"+name)
	v.dependent(t, "of-b-"+name, b, "")
	v.removePlain(t, b.GetName(), metav1.DeletePropagationForeground)
	v.gone(t, "of-b-"+name)
	v.gone(t, b.GetName())
	t.Logf("one in the foreground took %.1fs", time.Since(began).Seconds())
	within(t, discovered, "the caches that protected controllers read to be proven as of the fault", func() (bool, error) {
		rows := v.rows(t)
		for _, resource := range []string{"pods", "nodes", "replicasets"} {
			row := rows[resource]
			if row.AgeSeconds == nil || time.Duration(*row.AgeSeconds*float64(time.Second)) >= time.Since(from) {
				return false, nil
			}
		}
		return true, nil
	})
	t.Logf("others were proven after %.1fs", time.Since(began).Seconds())
	if proven := v.rows(t)[v.plural].LastProof; proven != nil {
		require.False(t, proven.After(lacks), "the cache lacks an object that was there at %s, and is proven as of %s", lacks, proven)
	}
	v.there(t, "of-"+name)

	began = time.Now()
	v.hook.set(false, false)
	v.remove(t, owner.GetName())
	within(t, discovered, "what is left of the fault to go", func() (bool, error) {
		_, err := v.maps.client(v.c).Get(t.Context(), "of-"+name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	t.Logf("its dependent went %.1fs after the end of the fault", time.Since(began).Seconds())
}

// plain creates a configmap.
func (v *converted) plain(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := v.maps.client(v.c).Create(t.Context(), configMap(name), metav1.CreateOptions{})
	require.NoError(t, err)
	return o
}

// dependent creates a configmap that has an owner, named in one of its versions.
func (v *converted) dependent(t *testing.T, name string, owner *unstructured.Unstructured, version string) {
	t.Helper()
	o := configMap(name)
	apiVersion := owner.GetAPIVersion()
	if version != "" {
		apiVersion = v.gvr(version).GroupVersion().String()
	}
	block := true
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: apiVersion, Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: &block}})
	_, err := v.maps.client(v.c).Create(t.Context(), o, metav1.CreateOptions{})
	require.NoError(t, err)
}

func (v *converted) remove(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, v.c.patient.Resource(v.gvr("v1")).Delete(t.Context(), name, metav1.DeleteOptions{}))
}

func (v *converted) removePlain(t *testing.T, name string, how metav1.DeletionPropagation) {
	t.Helper()
	require.NoError(t, v.maps.client(v.c).Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how}))
}

func (v *converted) gone(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" to be deleted", func() (bool, error) {
		_, err := v.maps.client(v.c).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
}

func (v *converted) there(t *testing.T, name string) {
	t.Helper()
	_, err := v.maps.client(v.c).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err, "its owner is there")
}

// looked counts the live reads of an object that were refused because it could not be converted.
func (v *converted) looked(t *testing.T, from time.Time, name string) (refused int) {
	t.Helper()
	_, err := controlplane.ReadAudit(v.c.APIServers()[0].AuditLogPath(), 0, func(e controlplane.AuditEvent) {
		if e.RequestReceivedTimestamp.After(from) && e.Verb == "get" && e.ObjectRef.Resource == v.plural && e.ObjectRef.Name == name && e.ResponseStatus.Code >= http.StatusInternalServerError {
			refused++
		}
	})
	require.NoError(t, err)
	return refused
}

// rows are the page's rows, by resource.
func (v *converted) rows(t *testing.T) map[string]stalenessz.StalenesszCache {
	t.Helper()
	raw, err := v.kcm.Get(t.Context(), stalenessz.Path+"?format=json")
	require.NoError(t, err)
	var page stalenessz.Stalenessz
	require.NoError(t, json.Unmarshal(raw, &page))
	out := map[string]stalenessz.StalenesszCache{}
	for _, row := range page.Caches {
		out[row.Resource] = row
	}
	return out
}

// complete waits until the converted resource is followed in v2, and its cache known to be complete.
func (v *converted) complete() {
	v.Helper()
	within(v.T, 2*discovered, "the converted resource's cache to be complete", func() (bool, error) {
		row := v.rows(v.T)[v.plural]
		return row.Version == "v2" && (row.State == stalenessmonitor.Fresh || row.State == stalenessmonitor.Quiet), nil
	})
}
