// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command build builds the project's binaries and those of the local control plane into _output/bin,
// with the version stamped in, reproducibly, and shows how far it is.
//
//	build                  everything but what only the static pod's test needs
//	build NAME...          the named binaries, such as kube-controller-manager or kubelet
//	build -arch ARCH NAME  the named binaries for Linux on amd64 or arm64, into _output/bin/linux-ARCH
//	build -version         print what would be stamped, and check it against go.mod
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fresh-kcm/fresh-kcm/hack/tools/build/stamp"
)

// architectures are those that a release has.
var architectures = []string{"amd64", "arm64"}

// target is one binary.
type target struct {
	name    string // below _output/bin
	arch    string // of Linux; empty: the machine that builds
	dir     string // the module that it is built in, from the root of the checkout
	pkg     string
	version func(stamp.Stamp) string // nil: carries no Kubernetes version
	asked   bool                     // built only if it is named
}

// targets are built in this order: what the next ones share comes first.
var targets = []target{
	{name: "kube-controller-manager", dir: ".", pkg: "./cmd/kube-controller-manager", version: stamp.Stamp.Fresh},
	{name: "staleness-lab", dir: ".", pkg: "./cmd/staleness-lab", version: stamp.Stamp.Fresh},
	{name: "upstream/kube-controller-manager", dir: "hack/tools/upstream", pkg: "k8s.io/kubernetes/cmd/kube-controller-manager", version: stamp.Stamp.Stock},
	{name: "kube-apiserver", dir: "hack/tools/upstream", pkg: "k8s.io/kubernetes/cmd/kube-apiserver", version: stamp.Stamp.Stock},
	{name: "kube-scheduler", dir: "hack/tools/upstream", pkg: "k8s.io/kubernetes/cmd/kube-scheduler", version: stamp.Stamp.Stock},
	{name: "etcd", dir: "hack/tools/etcd", pkg: "go.etcd.io/etcd/server/v3"},
	{name: "etcdutl", dir: "hack/tools/etcd", pkg: "go.etcd.io/etcd/etcdutl/v3"},
	{name: "kwok", dir: "hack/tools/kwok", pkg: "sigs.k8s.io/kwok/cmd/kwok"},
	{name: "kubectl", dir: "hack/tools/e2e", pkg: "k8s.io/kubernetes/cmd/kubectl", version: stamp.Stamp.Stock},
	{name: "kubeadm", dir: "hack/tools/upstream", pkg: "k8s.io/kubernetes/cmd/kubeadm", version: stamp.Stamp.Stock, asked: true},
	{name: "kubelet", dir: "hack/tools/upstream", pkg: "k8s.io/kubernetes/cmd/kubelet", version: stamp.Stamp.Stock, asked: true},
	{name: "containerd", dir: "hack/tools/containerd", pkg: "github.com/containerd/containerd/v2/cmd/containerd", asked: true},
	{name: "containerd-shim-runc-v2", dir: "hack/tools/containerd", pkg: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", asked: true},
	{name: "ctr", dir: "hack/tools/containerd", pkg: "github.com/containerd/containerd/v2/cmd/ctr", asked: true},
}

func main() {
	root := flag.String("root", ".", "root of the checkout")
	arch := flag.String("arch", "", "build for Linux on this architecture: "+strings.Join(architectures, " or "))
	printVersion := flag.Bool("version", false, "print the version information and build nothing")
	printPackages := flag.Bool("packages", false, "print how many packages each binary takes and build nothing")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: build [-root DIR] [-arch ARCH] [-version] [-packages] [NAME...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if err := run(*root, *arch, *printVersion, *printPackages, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

func run(root, arch string, printVersion, printPackages bool, names []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	if arch != "" && !slices.Contains(architectures, arch) {
		return fmt.Errorf("ARCH %q is unknown: there are %s", arch, strings.Join(architectures, ", "))
	}
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	info, err := stamp.Read(root)
	if err != nil {
		return err
	}
	if printVersion {
		fmt.Printf("version:    %s\nbase:       %s\ncommit:     %s\ntree state: %s\ndate:       %s\n", info.Version, info.Base, info.Commit, info.TreeState, info.Date.Format(time.RFC3339))
		return nil
	}
	chosen = slices.Clone(chosen)
	for i := range chosen {
		chosen[i].arch = arch
	}
	if printPackages {
		return countPackages(os.Stdout, root, chosen)
	}
	return buildAll(root, chosen, info)
}

// choose finds the targets by name; no name means all that do not want to be named.
func choose(names []string) ([]target, error) {
	if len(names) == 0 {
		return slices.DeleteFunc(slices.Clone(targets), func(t target) bool { return t.asked }), nil
	}
	var chosen []target
	for _, name := range names {
		found := false
		for _, t := range targets {
			if t.name == name {
				chosen, found = append(chosen, t), true
			}
		}
		if !found {
			known := make([]string, len(targets))
			for i, t := range targets {
				known[i] = t.name
			}
			return nil, fmt.Errorf("no binary is called %q: there are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}
