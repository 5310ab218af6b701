// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fresh-kcm/fresh-kcm/build/manifests"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/control"
	"github.com/fresh-kcm/fresh-kcm/cmd/staleness-lab/internal/play"
)

const (
	// pageReader is the service account that may read /stalenessz and /metrics, and nothing else.
	pageReader = "stalenessz-reader"
	// pageTokenLife is for how long its token is good.
	pageTokenLife = 7 * 24 * time.Hour
	// pageRole is of build/manifests/stalenessz-rbac.yaml.
	pageRole = "fresh-kcm:stalenessz-viewer"
	// pagePeriod is how often the lab reads the page, whose answer is up to a second old.
	pagePeriod = time.Second
)

// invite opens what the display invites to: a way to /stalenessz, and the door for a second command.
func (l *lab) invite(ctx context.Context) error {
	kcm := l.cluster.KCMs()[0]
	curl, err := l.writePageConfig(ctx, kcm.URL())
	if err != nil {
		return fmt.Errorf("opening a way to /stalenessz: %w", err)
	}
	player := &play.Player{
		Cluster: l.cluster, KCM: kcm, Proxy: l.proxy, Client: l.objects.Load().client,
		Sample: labels.FormatLabels(sampleLabels),
	}
	if err := l.control.Serve(ctx, l.shown(player.Run)); err != nil {
		return err
	}
	l.state.update(func(s *Snapshot) {
		s.PageURL, s.PageConfig, s.Node = kcm.URL()+"/stalenessz", curl, l.cluster.Nodes().Names()[0]
	})
	return nil
}

// shown has the display show a fault while it lasts.
func (l *lab) shown(run control.Run) control.Run {
	return func(ctx context.Context, fault control.Fault, say func(string)) error {
		running := &Fault{Fault: fault, Begin: time.Now()}
		l.state.update(func(s *Snapshot) { s.Faults = append(s.Faults, running) })
		defer l.state.update(func(s *Snapshot) {
			var others []*Fault
			for _, f := range s.Faults {
				if f != running {
					others = append(others, f)
				}
			}
			s.Faults = others
		})
		return run(ctx, fault, say)
	}
}

// writePageConfig writes a configuration for curl with the page's address and a token, which so are in nobody's list of
// processes, and returns its path.
func (l *lab) writePageConfig(ctx context.Context, url string) (string, error) {
	client, options := l.objects.Load().client, metav1.CreateOptions{}
	if err := manifests.ApplyStalenesszRBAC(ctx, client); err != nil {
		return "", err
	}
	accounts := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	account, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: pageReader}}, options)
	if err != nil {
		return "", err
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: pageReader},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: pageRole},
	}, options)
	if err != nil {
		return "", err
	}
	seconds := int64(pageTokenLife.Seconds())
	token, err := accounts.CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, options)
	if err != nil {
		return "", err
	}
	path := filepath.Join(l.cluster.Dir(), "stalenessz.curl")
	text := fmt.Sprintf("silent\nshow-error\nurl = %q\ncacert = %q\nheader = %q\n",
		url+"/stalenessz", filepath.Join(l.cluster.Dir(), "pki", "ca.crt"), "Authorization: Bearer "+token.Status.Token)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// followPage keeps what the page says up to date. While it cannot be read nothing is known.
func (l *lab) followPage(ctx context.Context) {
	ticker := time.NewTicker(pagePeriod)
	defer ticker.Stop()
	for {
		page, err := play.ReadPage(ctx, l.cluster.KCMs()[0])
		l.state.update(func(s *Snapshot) {
			if s.Page = nil; err == nil {
				s.Page = page
			}
		})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
