// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/component-base/configz"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/pkg/controller/util/consistency"

	"github.com/fresh-kcm/fresh-kcm/pkg/features"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// As main does, before anything has the gates' flags.
func init() { utilruntime.Must(features.Register(utilfeature.DefaultMutableFeatureGate)) }

// probeHeader marks the test's own requests, which do not reach the server.
const probeHeader = "X-Probe"

// lowest is the innermost transport of one client of the process.
type lowest struct {
	next   http.RoundTripper
	madeBy string
	reads  atomic.Int32
	writes atomic.Int32
}

func (w *lowest) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get(probeHeader) == "" {
		return w.next.RoundTrip(req)
	}
	if req.Method == http.MethodGet {
		w.reads.Add(1)
	} else {
		w.writes.Add(1)
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
}

// process is a kube-controller-manager that runs in the test, and all clients that it makes.
type process struct {
	mu    sync.Mutex
	wires []*lowest
	// outer are the transports of the clients that were made with a builder of ours.
	outer map[string][]http.RoundTripper
}

// clientMade is asked for the transport of every client that the process makes.
func (p *process) clientMade(next http.RoundTripper) http.RoundTripper {
	stack := make([]uintptr, 30)
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack)])
	var by []string
	for {
		frame, more := frames.Next()
		if strings.Contains(frame.Function, "kube-controller-manager/app") {
			by = append(by, fmt.Sprintf("%s (%s:%d)", frame.Function, filepath.Base(frame.File), frame.Line))
		}
		if !more {
			break
		}
	}
	w := &lowest{next: next, madeBy: strings.Join(by, " < ")}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wires = append(p.wires, w)
	return w
}

func (p *process) made(name string, outer http.RoundTripper) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outer[name] = append(p.outer[name], outer)
}

// noting tells of the clients that are made with the builder.
type noting struct {
	clientbuilder.ControllerClientBuilder
	p *process
}

func (n noting) Config(name string) (*restclient.Config, error) {
	c, err := n.ControllerClientBuilder.Config(name)
	if err == nil {
		c.Wrap(func(outer http.RoundTripper) http.RoundTripper {
			n.p.made(name, outer)
			return outer
		})
	}
	return c, err
}

func (n noting) ConfigOrDie(name string) *restclient.Config {
	c, err := n.Config(name)
	if err != nil {
		panic(err)
	}
	return c
}

func (n noting) note(name string, client restclient.Interface) {
	n.p.made(name, client.(*restclient.RESTClient).Client.Transport)
}

func (n noting) Client(name string) (clientset.Interface, error) {
	c, err := n.ControllerClientBuilder.Client(name)
	if err == nil {
		n.note(name, c.CoreV1().RESTClient())
	}
	return c, err
}

func (n noting) ClientOrDie(name string) clientset.Interface {
	c := n.ControllerClientBuilder.ClientOrDie(name)
	n.note(name, c.CoreV1().RESTClient())
	return c
}

func (n noting) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	c, err := n.ControllerClientBuilder.DiscoveryClient(name)
	if err == nil {
		n.note(name, c.RESTClient())
	}
	return c, err
}

func (n noting) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	c := n.ControllerClientBuilder.DiscoveryClientOrDie(name)
	n.note(name, c.RESTClient())
	return c
}

// lapsed is a lease that was never renewed.
type lapsed struct{}

func (lapsed) Renewed() time.Time { return time.Time{} }

// emptyServer has nothing but what a kube-controller-manager needs to build its controllers, and watches of nodes that bring nothing. It
// closes listed once the informers list, which they do when all controllers were built.
func emptyServer(t *testing.T, onRequest func(*http.Request)) (server *httptest.Server, listed chan struct{}) {
	t.Helper()
	listed = make(chan struct{})
	var once sync.Once
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		onRequest(req)
		answer := map[string]string{
			"/healthz":      `ok`,
			"/version":      `{"major":"1","minor":"37","gitVersion":"v1.37.0"}`,
			"/api":          `{"kind":"APIVersions","versions":["v1"]}`,
			"/apis":         `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
			"/api/v1":       `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod","verbs":["create","delete","list","watch"]}]}`,
			"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`,
		}[req.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if req.URL.Path == "/api/v1/nodes" && req.URL.Query().Get("watch") == "true" {
			w.(http.Flusher).Flush()
			<-req.Context().Done()
			return
		}
		if answer == "" {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = w.Write([]byte(answer))
		if strings.HasPrefix(req.UserAgent(), restclient.DefaultKubernetesUserAgent()+"/shared-informers") {
			if req.URL.Path != "/healthz" {
				once.Do(func() { close(listed) })
			}
		}
	}))
	t.Cleanup(server.Close)
	return server, listed
}

// configOf is the configuration of a process that runs these controllers.
func configOf(t *testing.T, server string, controllers []string, flags ...string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ca, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "test"}, key)
	require.NoError(t, err)
	keyFile, caFile := filepath.Join(dir, "key"), filepath.Join(dir, "ca")
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), 0o600))
	require.NoError(t, os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}), 0o600))
	s, err := options.NewKubeControllerManagerOptions()
	require.NoError(t, err)
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range s.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()).FlagSets {
		all.AddFlagSet(set)
	}
	require.NoError(t, all.Parse(append([]string{
		"--master=" + server, "--leader-elect=false", "--secure-port=0",
		"--controllers=" + strings.Join(controllers, ","),
		"--service-account-private-key-file=" + keyFile, "--root-ca-file=" + caFile, "--cluster-signing-cert-file=" + caFile, "--cluster-signing-key-file=" + keyFile,
		"--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/16", "--controller-shutdown-timeout=1s",
	}, flags...)))
	t.Cleanup(func() { configz.Delete(app.ConfigzName) }) // A process registers it once.
	c, err := s.Config(t.Context(), app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	require.NoError(t, err)
	return c
}

// Every client that the process makes goes through the transport which records writes and refuses them once the lease
// has run out; that of leader election cannot, and is not made in this test.
func TestNoClientEscapes(t *testing.T) {
	p := &process{outer: map[string][]http.RoundTripper{}}
	var wrote atomic.Pointer[string]
	server, listed := emptyServer(t, func(req *http.Request) {
		if req.Method != http.MethodGet && !strings.HasSuffix(req.URL.Path, "/events") {
			what := req.Method + " " + req.URL.Path + " by " + req.UserAgent()
			wrote.Store(&what)
		}
	})
	c := configOf(t, server.URL, append([]string{"*"}, app.ControllersDisabledByDefault()...))
	c.Kubeconfig.Wrap(p.clientMade)
	page.Consistency, page.Monitoring = true, true
	app.WrapClients(func(_ context.Context, builder clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder {
		return noting{transport.Clients(builder, &transport.Lease{Leadership: lapsed{}, Duration: time.Second}), p}
	})
	app.WrapInformerClients(watches.Clients)
	t.Cleanup(func() {
		page.Consistency, page.Monitoring = false, false
		app.WrapClients(nil)
		app.WrapInformerClients(nil)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(ctx, c.Complete(), wire) }()
	select {
	case <-listed:
	case err := <-ended:
		require.NoError(t, err, "it ended before its controllers were built")
		t.Fatal("it ended before its controllers were built")
	}

	p.mu.Lock()
	for name, outers := range p.outer {
		for _, outer := range outers {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				req, err := http.NewRequestWithContext(ctx, method, server.URL+"/api/v1/namespaces/ns/pods/a", nil)
				require.NoError(t, err)
				req.Header.Set(probeHeader, "yes")
				_, err = outer.RoundTrip(req)
				var refused *transport.NotLeaderError
				if method == http.MethodGet {
					require.NoError(t, err)
				} else {
					require.ErrorAs(t, err, &refused, "%s by the client of %s", method, name)
				}
			}
		}
	}
	for _, w := range p.wires {
		require.Positive(t, w.reads.Load(), "a client escapes, made by %s", w.madeBy)
		require.Zero(t, w.writes.Load(), "a client writes without a lease, made by %s", w.madeBy)
	}
	var names []string
	for name := range p.outer {
		names = append(names, name)
	}
	p.mu.Unlock()
	require.Subset(t, names, []string{"controller-discovery", "fresh-kcm", "generic-garbage-collector", "horizontal-pod-autoscaler",
		"metadata-informers", "namespace-controller", "node-controller", "shared-informers", "statefulset-controller", "tokens-controller"}, "clients of these were made")
	t.Logf("%d clients of %d names", len(p.wires), len(names))
	cancel()
	<-ended
	if what := wrote.Load(); what != nil {
		t.Errorf("sent without a lease: %s", *what)
	}
}

// What event handlers have not been told yet is known with either gate, and the informers of one resource can be made to relist: a protected controller
// asks for both without the monitor, too.
func TestInformersAreObservedWithEitherGate(t *testing.T) {
	pods, nodes := corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithResource("nodes")
	errSeen := errors.New("seen")
	for _, on := range []struct{ consistency, monitor bool }{{true, true}, {true, false}, {false, true}, {false, false}} {
		t.Run(fmt.Sprintf("%+v", on), func(t *testing.T) {
			featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
				features.StaleControllerConsistency: on.consistency, features.MonitorInformerStaleness: on.monitor,
			})
			watched := make(chan struct{}, 9)
			server, _ := emptyServer(t, func(req *http.Request) {
				if req.URL.Path == "/api/v1/nodes" && req.URL.Query().Get("watch") == "true" {
					watched <- struct{}{}
				}
			})
			c := configOf(t, server.URL, []string{"resourcequota-controller"})
			prepare(nil)
			t.Cleanup(func() {
				page.Consistency, page.Monitoring = false, false
				app.ObserveElection(nil)
				app.WrapClients(nil)
				app.WrapInformerFactory(nil)
				app.WrapInformerClients(nil)
				consistency.SetProvider(nil)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := app.Run(ctx, c.Complete(), wire, func(_ context.Context, controllerContext *app.ControllerContext, _ clientbuilder.ControllerClientBuilder) error {
				t.Cleanup(controllerContext.InformerFactory.Shutdown) // A process has one at a time.
				observed, err := controllerContext.ObjectOrMetadataInformerFactory.ForResource(pods)
				require.NoError(t, err)
				typed, err := controllerContext.InformerFactory.ForResource(pods)
				require.NoError(t, err)
				for _, informer := range []informers.GenericInformer{observed, typed} {
					_, known := consistency.Handled(informer.Informer()).(interface{ Store() cache.Store })
					require.Equal(t, on.consistency || on.monitor, known)
				}
				_, err = controllerContext.InformerFactory.ForResource(nodes)
				require.NoError(t, err)
				controllerContext.InformerFactory.Start(ctx.Done())
				<-watched
				if on.consistency || on.monitor {
					require.Eventually(t, func() bool { return watches.Relist(nodes.GroupResource(), time.Now()) == 1 }, time.Minute, time.Millisecond)
				} else {
					require.Zero(t, watches.Relist(nodes.GroupResource(), time.Now()))
				}
				cancel()
				return errSeen
			})
			require.ErrorIs(t, err, errSeen)
		})
	}
}

// The client that makes the controllers' service accounts and their tokens is one of the process's, too.
func TestServiceAccountsAreMadeByTheLeaderOnly(t *testing.T) {
	var made atomic.Bool
	server, _ := emptyServer(t, func(req *http.Request) {
		if req.Method != http.MethodGet && strings.Contains(req.URL.Path, "/serviceaccounts") {
			made.Store(true)
		}
	})
	c := configOf(t, server.URL, []string{"daemonset-controller"}, "--use-service-account-credentials=true")
	app.WrapClients(func(_ context.Context, builder clientbuilder.ControllerClientBuilder) clientbuilder.ControllerClientBuilder {
		return transport.Clients(builder, &transport.Lease{Leadership: lapsed{}, Duration: time.Second})
	})
	t.Cleanup(func() { app.WrapClients(nil) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := app.Run(ctx, c.Complete(), func(_ context.Context, controllerContext *app.ControllerContext, _ clientbuilder.ControllerClientBuilder) error {
		t.Cleanup(controllerContext.InformerFactory.Shutdown) // A process has one at a time.
		return nil
	})
	var refused *transport.NotLeaderError
	require.ErrorAs(t, err, &refused)
	require.False(t, made.Load())
}
