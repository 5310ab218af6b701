// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	adminUser      = "fresh-kcm-admin"
	kcmUser        = "system:kube-controller-manager"
	schedulerUser  = "system:kube-scheduler"
	kwokUser       = "fresh-kcm-kwok"
	frontProxyUser = "front-proxy-client"
	mastersGroup   = "system:masters"
)

// credentials authenticate a client: a certificate, or else a token.
type credentials struct {
	keyPair
	token string
}

// writeKubeconfig writes a self-contained kubeconfig and returns its path.
func (c *Cluster) writeKubeconfig(name, server string, caData []byte, who credentials) (string, error) {
	path := filepath.Join(c.dir, "kubeconfigs", name+".kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: caData}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificateData: who.cert, ClientKeyData: who.key, Token: who.token}
	config.Contexts["context"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "user"}
	config.CurrentContext = "context"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing kubeconfig %s: %w", path, err)
	}
	return path, nil
}

// clientKubeconfig makes a user's certificate and a kubeconfig for the first apiserver.
func (c *Cluster) clientKubeconfig(name, user string, groups ...string) (string, error) {
	who, err := c.pki.cluster.client(user, groups...)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(name, c.firstServer().URL(), c.CAData(), credentials{keyPair: who})
}

// adminConfig is a client without rate limit, for a server whose certificate is the cluster's.
func (c *Cluster) adminConfig(url string) *rest.Config {
	return &rest.Config{
		Host:            url,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.CAData(), CertData: c.admin.cert, KeyData: c.admin.key},
		QPS:             -1,
		UserAgent:       adminUser,
	}
}
