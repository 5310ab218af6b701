// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

// WriteKubernetesDir writes to a directory what kubeadm keeps in /etc/kubernetes for a kube-controller-manager and a
// kubelet, for the first apiserver: the authorities, the service account key, controller-manager.conf, and kubelet.conf
// of the node.
func (c *Cluster) WriteKubernetesDir(dir, node string) error {
	serviceAccount, err := os.ReadFile(c.pki.path("service-account.key"))
	if err != nil {
		return fmt.Errorf("writing %s: %w", dir, err)
	}
	files := map[string][]byte{"pki/sa.key": serviceAccount}
	for name, a := range map[string]*authority{"ca": c.pki.cluster, "front-proxy-ca": c.pki.front} {
		files["pki/"+name+".crt"] = a.certPEM()
		if files["pki/"+name+".key"], err = keyutil.MarshalPrivateKeyToPEM(a.key); err != nil {
			return fmt.Errorf("writing %s: %w", dir, err)
		}
	}
	for name, who := range map[string]struct {
		user   string
		groups []string
	}{
		"controller-manager.conf": {user: kcmUser},
		"kubelet.conf":            {user: "system:node:" + node, groups: []string{"system:nodes"}},
	} {
		path, err := c.clientKubeconfig(name, who.user, who.groups...)
		if err != nil {
			return err
		}
		if files[name], err = os.ReadFile(path); err != nil {
			return fmt.Errorf("writing %s: %w", dir, err)
		}
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("writing %s: %w", dir, err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", dir, err)
		}
	}
	return nil
}
