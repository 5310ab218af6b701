// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/fresh-kcm/fresh-kcm/build/manifests"
)

// KCM is a kube-controller-manager.
type KCM struct {
	*Component
	cluster *Cluster
	arm     Arm
}

// Arm returns which arm it runs.
func (k *KCM) Arm() Arm { return k.arm }

// URL returns the address of its secure port.
func (k *KCM) URL() string { return "https://" + k.ports[0].addr() }

// Get fetches a page such as /metrics, /flagz, /statusz, /configz or /healthz from its secure port, as
// admin. Any status but 200 is an error.
func (k *KCM) Get(ctx context.Context, path string) ([]byte, error) {
	body, err := k.cluster.get(ctx, k.URL()+path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.name, err)
	}
	return body, nil
}

// IsLeader reports whether it holds the lease kube-system/kube-controller-manager, by its own account.
func (k *KCM) IsLeader(ctx context.Context) (bool, error) {
	metrics, err := k.Get(ctx, "/metrics")
	if err != nil {
		return false, err
	}
	const series = `leader_election_master_status{name="kube-controller-manager"} `
	for lines := bufio.NewScanner(bytes.NewReader(metrics)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), series); ok {
			return value == "1", nil
		}
	}
	return false, nil // the series appears with the first attempt
}

// WaitForLeader waits until it leads and has built its controllers, it exits, or the context ends. A
// leader that has yet to build its controllers exits if the apiserver fails it.
func (k *KCM) WaitForLeader(ctx context.Context) error {
	k.mu.Lock()
	p := k.proc
	k.mu.Unlock()
	if p == nil {
		return k.errorf("become leader", errors.New("it is not running"))
	}
	if err := k.poll(ctx, p, k.leads); err != nil {
		return k.errorf("become leader", err)
	}
	return nil
}

func (k *KCM) leads(ctx context.Context) error {
	leader, err := k.IsLeader(ctx)
	if err != nil {
		return err
	}
	if !leader {
		return errors.New("it is healthy but not the leader")
	}
	checks, err := k.Get(ctx, "/healthz?verbose")
	if err != nil {
		return err
	}
	// Every controller adds a check of its own, all together once the last has been built.
	if !bytes.Contains(checks, []byte("-controller ok")) {
		return errors.New("it leads but has not built its controllers")
	}
	return nil
}

// StartKCM starts a kube-controller-manager and waits as WaitForLeader does, or, as its options say, until it
// is healthy. A restart waits for the same.
func (c *Cluster) StartKCM(ctx context.Context, options KCMOptions) (*KCM, error) {
	if options.Arm == "" {
		options.Arm = ArmP
	}
	if !options.Arm.valid() {
		return nil, fmt.Errorf("starting a kube-controller-manager: unknown arm %q", options.Arm)
	}
	k, err := c.newKCM(options)
	if err != nil {
		return nil, err
	}
	direct, err := c.clientKubeconfig(k.name, kcmUser)
	if err != nil {
		return nil, err
	}
	kubeconfig := direct
	if options.Server != "" {
		ca := options.CAData
		if len(ca) == 0 {
			ca = c.CAData()
		}
		kubeconfig, err = c.writeKubeconfig(k.name+"-server", options.Server, ca, credentials{token: c.pki.kcmToken})
		if err != nil {
			return nil, err
		}
	}
	k.args = func() ([]string, error) {
		return append(c.secureServing(k.Component, direct),
			"--kubeconfig="+kubeconfig,
			"--leader-elect=true",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+c.pki.path("service-account.key"),
			"--root-ca-file="+c.pki.path("ca.crt"),
		), nil
	}
	k.ready = k.leads
	if options.NoWaitForLeader {
		k.ready = func(ctx context.Context) error {
			_, err := k.IsLeader(ctx)
			return err
		}
	}
	if options.Arm == ArmP {
		if err := c.grantLiveReads(ctx); err != nil {
			return nil, k.errorf("start", err)
		}
	}
	if err := k.start(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// grantLiveReads applies the manifest that goes with this project's binary.
func (c *Cluster) grantLiveReads(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return fmt.Errorf("granting live reads: %w", err)
	}
	// The apiserver makes its namespaces soon after it is ready, not before.
	return retry(ctx, apierrors.IsNotFound, func() error { return manifests.ApplyRBAC(ctx, client) })
}

func (c *Cluster) newKCM(options KCMOptions) (*KCM, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := options.Name
	if name == "" {
		name = kubeControllerManager + "-" + strconv.Itoa(len(c.kcms))
	}
	comp, err := c.newComponent(name, kubeControllerManager, 1, options.ProcessOptions)
	if err != nil {
		return nil, err
	}
	comp.binary = options.Arm.Binary(c.binDir)
	comp.fixedGates = options.Arm.FeatureGates()
	k := &KCM{Component: comp, cluster: c, arm: options.Arm}
	c.kcms = append(c.kcms, k)
	return k, nil
}
