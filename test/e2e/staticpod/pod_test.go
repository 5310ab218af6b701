// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	container      = "kube-controller-manager"
	hashAnnotation = "kubernetes.io/config.hash"
)

// staticPod is a kube-controller-manager of the kubelet: a manifest in its folder.
type staticPod struct {
	*world
	name string
	port int
}

func (p *staticPod) path() string { return filepath.Join(manifestsDir, p.name+".yaml") }

func (p *staticPod) manifest(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.path())
	require.NoError(t, err)
	return string(text)
}

// write puts another manifest in place, as an editor does, and waits until the kubelet runs it.
func (p *staticPod) write(t *testing.T, manifest string) {
	t.Helper()
	p.change(t, func() {
		// The kubelet reads each file in the folder whenever one changes, also one that is half written.
		draft := filepath.Join(kubernetesDir, "draft.yaml")
		p.node.write(t, draft, manifest)
		require.NoError(t, os.Rename(draft, p.path()))
	})
}

// replace takes the manifest away, waits until the pod is gone, and puts another one in place. The kubelet takes that up at
// once; after an edit it looks 10 to 15 s later whether the pod of before has ended.
func (p *staticPod) replace(t *testing.T, manifest string) {
	t.Helper()
	p.remove(t)
	p.write(t, manifest)
}

// remove takes the manifest away and waits until the pod is gone.
func (p *staticPod) remove(t *testing.T) {
	t.Helper()
	require.NoError(t, os.Remove(p.path()))
	p.eventually(t, p.name+" is gone", func(ctx context.Context) error {
		switch pod, err := p.pod(ctx); {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		default:
			return fmt.Errorf("it is %s", pod.Status.Phase)
		}
	})
}

// byKubeadm has kubeadm write the manifest, from a configuration file.
func (p *staticPod) byKubeadm(t *testing.T, config string) {
	t.Helper()
	p.change(t, func() { p.kubeadm(t, "init", "phase", "control-plane", "controller-manager", "--config="+config) })
}

// change makes a change of the manifest and waits until the kubelet reports on the pod that it is of.
func (p *staticPod) change(t *testing.T, do func()) {
	t.Helper()
	before := ""
	if pod, err := p.pod(t.Context()); err == nil {
		before = pod.Annotations[hashAnnotation]
	}
	do()
	p.eventually(t, "the kubelet takes up the manifest of "+p.name, func(ctx context.Context) error {
		pod, _, err := p.podAndContainer(ctx)
		if err == nil && pod.Annotations[hashAnnotation] == before {
			err = errors.New("it reports on the manifest of before")
		}
		return err
	})
}

// pod is what the kubelet reports to the apiserver.
func (p *staticPod) pod(ctx context.Context) (*corev1.Pod, error) {
	return p.client.CoreV1().Pods(metav1.NamespaceSystem).Get(ctx, p.name+"-"+nodeName, metav1.GetOptions{})
}

// podAndContainer is the pod and the status of its container, as the kubelet reports them.
func (p *staticPod) podAndContainer(ctx context.Context) (*corev1.Pod, corev1.ContainerStatus, error) {
	pod, err := p.pod(ctx)
	if err != nil {
		return nil, corev1.ContainerStatus{}, err
	}
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if i < 0 {
		return nil, corev1.ContainerStatus{}, fmt.Errorf("pod %s has no status of its container", pod.Name)
	}
	return pod, pod.Status.ContainerStatuses[i], nil
}

func (p *staticPod) status(t *testing.T) corev1.ContainerStatus {
	t.Helper()
	_, status, err := p.podAndContainer(t.Context())
	require.NoError(t, err)
	return status
}

// get fetches a page from its secure port, as the cluster's admin.
func (p *staticPod) get(ctx context.Context, page string) (string, error) {
	return p.page(ctx, fmt.Sprintf("https://127.0.0.1:%d%s", p.port, page))
}

func (w *world) page(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := w.http.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(body), err
}

// leading is nil if it runs, leads and has built its controllers.
func (p *staticPod) leading(ctx context.Context) error {
	switch leads, err := p.isLeader(ctx); {
	case err != nil:
		return err
	case !leads:
		return errors.New("it does not lead")
	}
	checks, err := p.get(ctx, "/healthz?verbose")
	if err == nil && !strings.Contains(checks, "-controller ok") {
		err = errors.New("it has not built its controllers")
	}
	return err
}

func (p *staticPod) isLeader(ctx context.Context) (bool, error) {
	metrics, err := p.get(ctx, "/metrics")
	return strings.Contains(metrics, `leader_election_master_status{name="kube-controller-manager"} 1`), err
}

func (p *staticPod) leads(t *testing.T) {
	t.Helper()
	p.eventually(t, p.name+" leads", p.leading)
}

// runs checks which build of kube-controller-manager the container is.
func (p *staticPod) runs(t *testing.T, version string) {
	t.Helper()
	p.eventually(t, p.name+" is "+version, func(ctx context.Context) error {
		metrics, err := p.get(ctx, "/metrics")
		if err == nil && !strings.Contains(metrics, `git_version="`+version+`"`) {
			err = fmt.Errorf("it is %s", regexp.MustCompile(`kubernetes_build_info\{.*`).FindString(metrics))
		}
		return err
	})
}

// logs are what the container has written since the manifest was changed, over all its restarts.
func (p *staticPod) logs(ctx context.Context) (string, error) {
	pod, err := p.pod(ctx)
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(p.dir, "log/pods", "kube-system_"+pod.Name+"_"+pod.Annotations[hashAnnotation], container, "*.log"))
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

// logged is nil if a line of the log matches.
func (p *staticPod) logged(ctx context.Context, pattern string) error {
	log, err := p.logs(ctx)
	if err == nil && !regexp.MustCompile(`(?m)^.*`+pattern).MatchString(log) {
		lines := strings.Split(strings.TrimSpace(log), "\n")
		err = fmt.Errorf("no line like %q; the last are:\n%s", pattern, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
	return err
}

// kill ends the container's process as a crash does, or sends it another signal.
func (p *staticPod) kill(t *testing.T, signal string) {
	t.Helper()
	id := strings.TrimPrefix(p.status(t).ContainerID, "containerd://")
	require.NotEmpty(t, id)
	require.NoError(t, p.ctr(t.Context(), "tasks", "kill", "--signal="+signal, id))
}

// restarted waits until the kubelet has started the container once more than so many times.
func (p *staticPod) restarted(t *testing.T, before int32) {
	t.Helper()
	p.eventually(t, "the kubelet restarts "+p.name, func(ctx context.Context) error {
		_, status, err := p.podAndContainer(ctx)
		if err == nil && (status.RestartCount <= before || status.State.Running == nil) {
			err = fmt.Errorf("%d restarts, %+v", status.RestartCount, status.State)
		}
		return err
	})
}
