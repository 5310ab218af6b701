// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certLifetime outlasts any test; nothing is rotated.
const certLifetime = 30 * 24 * time.Hour

// authority is a certificate authority of the cluster.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// keyPair is a certificate and its key, in PEM.
type keyPair struct{ cert, key []byte }

func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	template, err := newTemplate(name)
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("certificate authority %s: %w", name, err)
	}
	return &authority{cert: parsed, key: key}, nil
}

// certPEM returns the authority's certificate.
func (a *authority) certPEM() []byte { return encodeCert(a.cert.Raw) }

// serving issues a certificate for a server on this machine, good as a client certificate too, as etcd
// uses its own as both.
func (a *authority) serving(name string, dnsNames ...string) (keyPair, error) {
	template, err := newTemplate(name)
	if err != nil {
		return keyPair{}, err
	}
	template.DNSNames = append([]string{"localhost"}, dnsNames...)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), firstServiceIP}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// client issues a certificate that authenticates a user in some groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	template, err := newTemplate(user)
	if err != nil {
		return keyPair{}, err
	}
	template.Subject.Organization = groups
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	name := template.Subject.CommonName
	key, keyPEM, err := newKey()
	if err != nil {
		return keyPair{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("certificate %s: %w", name, err)
	}
	return keyPair{cert: encodeCert(der), key: keyPEM}, nil
}

func newTemplate(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", name, err)
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour), // for clocks that a test sets back
		NotAfter:     now.Add(certLifetime),
	}, nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	return key, pem, err
}

func encodeCert(der []byte) []byte {
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		panic("a certificate just made does not parse: " + err.Error())
	}
	pem, err := cert.EncodeCertificates(parsed)
	if err != nil {
		panic("a certificate just made does not encode: " + err.Error())
	}
	return pem
}

// pki is what all the components of a cluster know of each other.
type pki struct {
	dir                  string
	cluster, etcd, front *authority
	kcmToken             string
}

// newPKI makes the authorities and the certificates that belong to no single component.
func newPKI(dir string) (*pki, error) {
	p := &pki{dir: dir}
	for name, into := range map[string]**authority{"ca": &p.cluster, "etcd-ca": &p.etcd, "front-proxy-ca": &p.front} {
		a, err := newAuthority(name)
		if err != nil {
			return nil, err
		}
		*into = a
		if err := p.write(name+".crt", a.certPEM()); err != nil {
			return nil, err
		}
	}
	if err := p.pair("etcd", func() (keyPair, error) { return p.etcd.serving("etcd") }); err != nil {
		return nil, err
	}
	if err := p.pair("apiserver-etcd-client", func() (keyPair, error) { return p.etcd.client(kubeAPIServer) }); err != nil {
		return nil, err
	}
	if err := p.pair("front-proxy-client", func() (keyPair, error) { return p.front.client(frontProxyUser) }); err != nil {
		return nil, err
	}
	// One serving certificate does for every component: they all listen on the same address.
	if err := p.pair("serving", func() (keyPair, error) {
		return p.cluster.serving("fresh-kcm-controlplane", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	}); err != nil {
		return nil, err
	}
	// A private key file serves for --service-account-key-file too.
	_, keyPEM, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("service account key: %w", err)
	}
	if err := p.write("service-account.key", keyPEM); err != nil {
		return nil, err
	}
	p.kcmToken = rand.Text()
	tokens := fmt.Sprintf("%s,%s,%s\n", p.kcmToken, kcmUser, kcmUser)
	return p, p.write("tokens.csv", []byte(tokens))
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) pair(name string, make func() (keyPair, error)) error {
	kp, err := make()
	if err != nil {
		return err
	}
	if err := p.write(name+".crt", kp.cert); err != nil {
		return err
	}
	return p.write(name+".key", kp.key)
}

func (p *pki) write(name string, data []byte) error {
	if err := os.WriteFile(p.path(name), data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
