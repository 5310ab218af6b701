// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	nodeName       = "control-plane"
	nodeIP         = "192.0.2.1" // hack/test-static-pod.sh gives it to the loopback device
	kubernetesDir  = "/etc/kubernetes"
	manifestsDir   = kubernetesDir + "/manifests"
	containerdSock = "/run/containerd/containerd.sock"
	pauseImage     = "localhost/fresh-kcm/pause:test"
)

// node is a real node: containerd and kubelet.
type node struct {
	bin   string // of the checkout
	dir   string // with the images, and log
	state string
}

// containerdConfig leaves out what needs rights or devices that a machine for tests may lack.
var containerdConfig = template.Must(template.New("").Parse(`version = 3
root = "{{.State}}/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "{{.Socket}}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{{.Pause}}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
`))

// networkConfig makes the node Ready. All pods here have the host's network, so nothing ever calls the plugin.
const networkConfig = `{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "loopback"}]}`

// kubeletConfig is kubeadm's but for cgroup version 1, the folders, and back-off that a test can wait for.
var kubeletConfig = template.Must(template.New("").Parse(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
healthzBindAddress: 127.0.0.1
readOnlyPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: Webhook}
staticPodPath: /etc/kubernetes/manifests
podLogsDir: {{.Dir}}/log/pods
containerRuntimeEndpoint: unix://{{.Socket}}
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: {{.Cgroup}}
resolvConf: ""
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi}
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
`))

// startContainerd starts containerd and gives it the images that the test may need.
func (n *node) startContainerd(t *testing.T) {
	n.write(t, "/etc/cni/net.d/10-none.conflist", networkConfig)
	config := n.render(t, containerdConfig, "containerd.toml")
	n.start(t, "containerd", "--config", config)
	n.eventually(t, "containerd answers", func(ctx context.Context) error { return n.ctr(ctx, "version") })
	t.Run("TamperedImage", n.refusesTampered)
	for _, image := range []string{"pause.tar", "stock.tar", "ours.tar"} {
		require.NoError(t, n.ctr(t.Context(), "images", "import", filepath.Join(n.dir, image)))
	}
}

// startKubelet starts the kubelet. Its kubeconfig and the authorities must be in kubernetesDir.
func (n *node) startKubelet(t *testing.T) {
	require.NoError(t, os.MkdirAll(manifestsDir, 0o700))
	config := n.render(t, kubeletConfig, "kubelet.yaml")
	n.start(t, "kubelet", "--config="+config, "--kubeconfig="+kubernetesDir+"/kubelet.conf", "--root-dir="+n.state+"/kubelet",
		"--cert-dir="+n.state+"/kubelet/pki", "--hostname-override="+nodeName, "--node-ip="+nodeIP, "--v=2")
}

// start starts a process that lives as long as the namespaces do.
func (n *node) start(t *testing.T, name string, args ...string) {
	log, err := os.Create(filepath.Join(n.dir, "log", name+".log"))
	require.NoError(t, err)
	defer log.Close()
	cmd := exec.Command(filepath.Join(n.bin, name), args...)
	cmd.Env = append(os.Environ(), "PATH="+n.bin+":"+os.Getenv("PATH")) // containerd looks for its shim there
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		select {
		case err := <-exited:
			t.Errorf("%s exited: %v; its log is %s", name, err, log.Name())
		default:
			_ = cmd.Process.Kill()
		}
	})
}

// ctr runs containerd's client in the namespace of Kubernetes.
func (n *node) ctr(ctx context.Context, args ...string) error {
	return run(ctx, filepath.Join(n.bin, "ctr"), append([]string{"--namespace=k8s.io"}, args...)...)
}

// kubeadm runs kubeadm.
func (n *node) kubeadm(t *testing.T, args ...string) {
	t.Helper()
	require.NoError(t, run(t.Context(), filepath.Join(n.bin, "kubeadm"), args...))
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}

func (n *node) render(t *testing.T, text *template.Template, name string) string {
	var buffer bytes.Buffer
	require.NoError(t, text.Execute(&buffer, map[string]string{
		"State": n.state, "Dir": n.dir, "Socket": containerdSock, "Pause": pauseImage, "Cgroup": os.Getenv("STATIC_POD_CGROUP"),
	}))
	path := filepath.Join(n.state, name)
	n.write(t, path, buffer.String())
	return path
}

func (n *node) write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// eventually waits until something holds; what it says last goes into the failure.
func (n *node) eventually(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	const patience = 90 * time.Second
	begin := time.Now()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := holds(ctx)
		if ctx.Err() == nil || err == nil {
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		require.FailNow(t, "not within "+patience.String()+": "+what, "%v", last)
	}
	if took := time.Since(begin); took >= time.Second {
		t.Logf("after %.1f s: %s", took.Seconds(), what)
	}
}
