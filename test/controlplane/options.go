// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Options describe a cluster. The zero value is a cluster of one apiserver without nodes and without
// kube-controller-manager, in a temporary directory.
type Options struct {
	// Dir is where the cluster keeps its files; it is made if missing, must not hold another cluster's
	// files, and is never removed. Empty: a temporary directory that Stop removes unless Keep was set
	// or asked for or a component died by itself.
	Dir string
	// Keep leaves a temporary directory in place after Stop.
	Keep bool
	// BinDir holds the binaries. Empty: $FRESH_KCM_BIN_DIR, else the directory of the running
	// executable if etcd is beside it, else _output/bin of the enclosing checkout.
	BinDir string

	// APIServers is how many kube-apiservers share the etcd. Zero means one.
	APIServers int
	// EtcdMembers is how many members etcd has, an odd number; see EtcdPeers. The first apiserver is a client of the first member
	// only, the second of the second, and so on, as in kubeadm's clusters with an etcd on each machine of the control plane.
	// Zero means one.
	EtcdMembers int
	// Nodes are created and Ready before Start returns.
	Nodes NodeOptions
	// KCMs are started by Start. More can follow with Cluster.StartKCM.
	KCMs []KCMOptions

	// Etcd, APIServer, Scheduler and Kwok change how the other components are run.
	Etcd, APIServer, Scheduler, Kwok ProcessOptions
	// NodeLeaseDuration is written to the nodes' leases, which are renewed every quarter of it.
	// Zero means the kubelet's 40 s. Whole seconds.
	NodeLeaseDuration time.Duration
	// LeaseGenerator has this process renew the leases of living nodes in kwok's place, which watches every lease and so
	// costs the apiserver an event for each renewal: for clusters where that is most of the load.
	LeaseGenerator bool
	// NoAudit turns off the apiservers' audit log, see APIServer.AuditLogPath.
	NoAudit bool

	// Progress is called at every change of a component's state, and for the Nodes above under the name
	// "nodes"; from any goroutine and with locks held: it must return soon and not call back into the
	// cluster. May be nil.
	Progress func(component string, state State)
}

// ProcessOptions change one component's command line.
type ProcessOptions struct {
	// Binary replaces the component's binary. Empty means the one in BinDir.
	Binary string
	// FeatureGates become --feature-gates. For a kube-controller-manager they are merged over its arm's.
	FeatureGates map[string]bool
	// Args come after this package's own flags, so for a flag given twice they win.
	Args []string
	// Env is added to the environment of this process, as KEY=value.
	Env []string
}

// KCMOptions describe one kube-controller-manager.
type KCMOptions struct {
	// Arm chooses binary and feature gates. Empty means ArmP.
	Arm Arm
	// Name is the component's name, unique in its cluster. Empty means kube-controller-manager-N.
	Name string
	// Server is the URL of the apiserver, or of a proxy in front of one, that its controllers use.
	// Empty means the first apiserver. Delegated authentication and authorization, which serve only
	// /metrics and the like, always go to the first apiserver directly: what is under a fault stays
	// observable.
	//
	// A proxy that ends TLS cannot pass a client certificate on, so with Server set the client
	// authenticates by bearer token, as the controllers' service accounts do anyhow.
	Server string
	// CAData is the PEM bundle that Server's certificate is checked against. Empty means the cluster's.
	CAData []byte
	// NoWaitForLeader makes start and restart return when it answers on its secure port rather than
	// when it leads and has built its controllers, as a standby needs it.
	NoWaitForLeader bool
	// ProcessOptions change its command line, timings for instance.
	ProcessOptions
}

// NodeOptions describe a group of nodes that kwok keeps alive.
type NodeOptions struct {
	// Count is the number of nodes.
	Count int
	// Prefix begins every name, which goes on with a number: node-0000. Empty means "node-".
	Prefix string
	// Zones are given to the nodes in turn as topology.kubernetes.io/zone. Empty means one zone, zone-a.
	Zones []string
	// Labels and Taints are put on every node.
	Labels map[string]string
	Taints []corev1.Taint
}
