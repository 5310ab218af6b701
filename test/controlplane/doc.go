// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane starts a real Kubernetes control plane as processes on loopback: etcd of one or
// several members, one or more kube-apiservers, kube-scheduler, one or more kube-controller-managers, and kwok in place of nodes.
//
// What it promises:
//
//   - Everything is as in production where it matters to a controller: TLS with client certificates
//     between all components, RBAC, one service account per controller, leader election, the
//     default admission plugins and feature gates.
//   - Start returns when the components answer their health endpoints and every node is Ready. When one
//     dies or is late, the error is a *ComponentError naming it, its exit status and its last log lines.
//   - Every process can be paused, resumed, killed, restarted with other arguments and replaced, so a
//     test can make one apiserver lag, hand leadership over, or rewind etcd.
//   - Nothing outlives its owner: Stop leaves no process behind, and on Linux the kernel kills every
//     component when the process that started it dies, however it dies.
//   - Clusters share nothing but the machine: many may run in one process or in several.
//
// A cluster lives in one directory:
//
//	logs/<component>.log   stdout and stderr, appended over restarts
//	logs/<apiserver>-audit.log
//	pki/                   certificate authorities, certificates, service account key
//	kubeconfigs/           one for each component, and admin.kubeconfig
//	data/                  etcd's data, kwok's stages, the audit policy
//
// The binaries come from the Makefile, see BinDir in Options; which binary and which feature gates a
// kube-controller-manager gets is chosen by its Arm.
//
// All methods may be called from several goroutines. Operations on one component are serialised.
package controlplane
