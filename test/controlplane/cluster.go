// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/test/peerlink"
)

// Cluster is a running control plane.
type Cluster struct {
	options     Options
	dir, binDir string
	temporary   bool
	pki         *pki
	admin       keyPair

	etcd            []*Component    // its members
	peers           *peerlink.Links // nil if there is one
	scheduler, kwok *Component
	leases          *leaseGenerator // nil if kwok renews leases
	nodes           *Nodes

	httpOnce sync.Once
	http     *http.Client
	httpErr  error

	mu         sync.Mutex // guards what follows
	components []*Component
	apiServers []*APIServer
	kcms       []*KCM
	keep       bool
	stopped    bool
}

// Start starts a cluster and returns when all of it is ready. The context bounds the start only. On an
// error nothing is left running, and the cluster's directory is kept for its logs.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	c, err := newCluster(options)
	if err != nil {
		return nil, fmt.Errorf("starting a control plane: %w", err)
	}
	if err := c.start(ctx); err != nil {
		c.Keep()
		return nil, errors.Join(fmt.Errorf("starting a control plane in %s: %w", c.dir, err), c.Stop(ctx))
	}
	return c, nil
}

func newCluster(options Options) (*Cluster, error) {
	options.APIServers = max(options.APIServers, 1)
	c := &Cluster{options: options, keep: options.Keep, binDir: options.BinDir}
	var err error
	if c.binDir == "" {
		if c.binDir, err = FindBinDir(); err != nil {
			return nil, err
		}
	}
	var arms []Arm
	for _, k := range options.KCMs {
		if k.Arm == "" {
			k.Arm = ArmP
		}
		if k.Binary == "" {
			arms = append(arms, k.Arm)
		}
	}
	if err := CheckBinaries(c.binDir, arms...); err != nil {
		return nil, err
	}
	if err := c.makeDirs(); err != nil {
		return nil, err
	}
	if c.pki, err = newPKI(filepath.Join(c.dir, "pki")); err != nil {
		return nil, err
	}
	if c.admin, err = c.pki.cluster.client(adminUser, mastersGroup); err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.auditPolicyPath(), []byte(auditPolicy), 0o644); err != nil {
		return nil, fmt.Errorf("writing the audit policy: %w", err)
	}
	c.nodes = newNodes(c)
	return c, nil
}

func (c *Cluster) makeDirs() (err error) {
	if c.options.Dir == "" {
		c.temporary = true
		c.dir, err = os.MkdirTemp("", "fresh-kcm-")
	} else {
		c.dir, err = filepath.Abs(c.options.Dir)
	}
	if err != nil {
		return fmt.Errorf("making the cluster's directory: %w", err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, "pki")); err == nil {
		return fmt.Errorf("%s holds the files of another cluster", c.dir)
	}
	for _, sub := range []string{"logs", "pki", "kubeconfigs", "data", "data/kwok"} {
		// etcd wants its data to be nobody else's.
		if err := os.MkdirAll(filepath.Join(c.dir, sub), 0o700); err != nil {
			return fmt.Errorf("making the cluster's directory: %w", err)
		}
	}
	return nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if err = c.newEtcd(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if _, err := c.StartAPIServer(ctx, c.options.APIServer); err != nil {
		return err
	}
	if _, err := c.writeKubeconfig("admin", c.firstServer().URL(), c.CAData(), credentials{keyPair: c.admin}); err != nil {
		return err
	}
	if c.scheduler, err = c.newScheduler(); err != nil {
		return err
	}
	if c.kwok, err = c.newKwok(); err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	c.startOthers(gctx, g)
	if err := g.Wait(); err != nil {
		return err
	}
	for _, k := range c.options.KCMs {
		if !k.NoWaitForLeader {
			return c.waitServiceAccount(ctx)
		}
	}
	return nil
}

// startOthers starts what needs no more than a first apiserver.
func (c *Cluster) startOthers(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error {
		for range c.options.APIServers - 1 {
			if _, err := c.StartAPIServer(ctx, c.options.APIServer); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error { return c.scheduler.start(ctx) })
	for _, k := range c.options.KCMs {
		g.Go(func() error {
			_, err := c.StartKCM(ctx, k)
			return err
		})
	}
	g.Go(func() error {
		if err := c.grantKwok(ctx); err != nil {
			return err
		}
		if err := c.kwok.start(ctx); err != nil {
			return err
		}
		if err := c.startLeases(ctx); err != nil {
			return err
		}
		return c.createFirstNodes(ctx)
	})
}

func (c *Cluster) createFirstNodes(ctx context.Context) error {
	if c.options.Nodes.Count == 0 {
		return nil
	}
	tell := func(s State) {
		if c.options.Progress != nil {
			c.options.Progress("nodes", s)
		}
	}
	tell(StateStarting)
	if _, err := c.nodes.Create(ctx, c.options.Nodes); err != nil {
		tell(StateFailed)
		return err
	}
	tell(StateRunning)
	return nil
}

// waitServiceAccount waits for what a pod in the namespace default cannot be created without, so that a
// test sees no creation fail.
func (c *Cluster) waitServiceAccount(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return fmt.Errorf("waiting for service account default/default: %w", err)
	}
	err = retry(ctx, apierrors.IsNotFound, func() error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("waiting for service account default/default: %w", err)
	}
	return nil
}

// newComponent makes a component with its ports. The caller sets args and ready before starting it, and
// holds c.mu or is the only one to know c.
func (c *Cluster) newComponent(name, binary string, ports int, options ProcessOptions) (*Component, error) {
	for _, other := range c.components {
		if other.name == name {
			return nil, fmt.Errorf("there is a component %s already", name)
		}
	}
	comp := &Component{
		name:     name,
		logPath:  logFile(c.dir, name),
		binary:   filepath.Join(c.binDir, binary),
		options:  options.clone(),
		progress: c.options.Progress,
		state:    StateStopped,
	}
	for range ports {
		lease, err := leasePort()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		comp.ports = append(comp.ports, lease)
	}
	c.components = append(c.components, comp)
	return comp, nil
}

// Dir returns the directory with the cluster's logs, certificates, kubeconfigs and data.
func (c *Cluster) Dir() string { return c.dir }

// BinPath returns where a binary of the cluster is, etcdutl for instance.
func (c *Cluster) BinPath(name string) string { return filepath.Join(c.binDir, name) }

// CAData returns the PEM certificate that signs every serving certificate but etcd's.
func (c *Cluster) CAData() []byte { return c.pki.cluster.certPEM() }

// ServingCert returns a PEM certificate and key for a server on a loopback address, such as a proxy in
// front of an apiserver, signed by the cluster's authority.
func (c *Cluster) ServingCert(name string) (cert, key []byte, err error) {
	pair, err := c.pki.cluster.serving(name)
	return pair.cert, pair.key, err
}

// AdminConfig returns a client of the first apiserver, in group system:masters and without rate limit.
func (c *Cluster) AdminConfig() *rest.Config { return c.firstServer().AdminConfig() }

// KubeconfigPath returns the admin's kubeconfig, for the first apiserver.
func (c *Cluster) KubeconfigPath() string {
	return filepath.Join(c.dir, "kubeconfigs", "admin.kubeconfig")
}

// Etcd returns etcd, the first of its members.
func (c *Cluster) Etcd() *Component { return c.etcd[0] }

// EtcdURL returns where etcd serves its clients, at the first of its members. It wants a client certificate, such as
// pki/apiserver-etcd-client.crt in the cluster's directory.
func (c *Cluster) EtcdURL() string { return c.etcdServer(0) }

// Scheduler returns the kube-scheduler.
func (c *Cluster) Scheduler() *Component { return c.scheduler }

// Kwok returns kwok, which stands for every node's kubelet. After a restart it takes a node over only
// when the node's lease has run out; to make nodes silent and bring them back, see Nodes.
func (c *Cluster) Kwok() *Component { return c.kwok }

// Nodes returns the nodes.
func (c *Cluster) Nodes() *Nodes { return c.nodes }

// APIServers returns the apiservers in the order in which they were started.
func (c *Cluster) APIServers() []*APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.apiServers)
}

// KCMs returns the kube-controller-managers in the order in which they were started.
func (c *Cluster) KCMs() []*KCM {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.kcms)
}

// Components returns the state of every component.
func (c *Cluster) Components(ctx context.Context) []Status {
	c.mu.Lock()
	components := slices.Clone(c.components)
	c.mu.Unlock()
	var out []Status
	for _, comp := range components {
		out = append(out, comp.status(ctx))
	}
	return out
}

// Keep makes Stop leave the cluster's directory in place, as a test that failed wants it.
func (c *Cluster) Keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep = true
}

func (c *Cluster) firstServer() *APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.apiServers[0]
}
