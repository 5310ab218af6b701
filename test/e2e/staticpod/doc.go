// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package staticpod runs kube-controller-manager as kubeadm has it run: as the static pod of a real kubelet, by
// containerd and runc, against a real etcd and kube-apiserver, with kwok's nodes beside the real one. kubeadm itself
// writes the manifests.
//
// It takes over /etc/kubernetes, fixed ports and cgroups, so hack/test-static-pod.sh gives it namespaces of its own.
package staticpod
