// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command faultproxy runs one fault proxy in front of a kube-apiserver, with a control API on loopback.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

type flags struct {
	listen, control                         string
	backends                                []string
	cert, key, ca, clientCA, clientCert, ck string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "faultproxy:", strings.TrimPrefix(err.Error(), "faultproxy: "))
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "faultproxy --backend [name=]https://host:port ...",
		Short: "Spoil the watch streams of single resources between one client and a kube-apiserver",
		Long: `faultproxy prints its own URL and its control API's, and runs until it is interrupted.

Control API (JSON):
  POST   /faults       {"effect":"Hold","resource":"nodes"}, {"effect":"Delay","resource":"pods","by":"10s"}, ...
  PUT    /faults/{id}  {"by":"1s"} changes a Delay
  DELETE /faults/{id}  clears a fault and returns what it did
  POST   /backend      {"name":"b","cut":true} moves the client to another apiserver
  GET    /stats        faults, watches and request counts; ?resource=R&group=G adds the progress of a resource
  GET    /journal      the latest interventions`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd, f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.listen, "listen", "127.0.0.1:0", "loopback address for the client")
	fs.StringVar(&f.control, "control", "127.0.0.1:0", "loopback address for the control API")
	fs.StringArrayVar(&f.backends, "backend", nil, "apiserver, as [name=]https://host:port; the first one is used first")
	fs.StringVar(&f.cert, "cert", "", "serving certificate (PEM file)")
	fs.StringVar(&f.key, "key", "", "serving key (PEM file)")
	fs.StringVar(&f.ca, "ca", "", "CAs of the apiservers (PEM file)")
	fs.StringVar(&f.clientCA, "client-ca", "", "CAs of the client's certificate (PEM file); default: --ca")
	fs.StringVar(&f.clientCert, "client-cert", "", "the client's own certificate, shown to the apiservers (PEM file)")
	fs.StringVar(&f.ck, "client-key", "", "key of --client-cert (PEM file)")
	for _, name := range []string{"backend", "cert", "key", "ca"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag of that name is defined above
		}
	}
	cmd.MarkFlagsRequiredTogether("client-cert", "client-key")
	return cmd
}

func (f flags) options() (faultproxy.Options, error) {
	opts := faultproxy.Options{Listen: f.listen}
	var err error
	if opts.ServingCert, err = tls.LoadX509KeyPair(f.cert, f.key); err != nil {
		return opts, fmt.Errorf("serving certificate: %w", err)
	}
	cas, err := loadPool(f.ca)
	if err != nil {
		return opts, err
	}
	opts.ClientCAs = cas
	if f.clientCA != "" {
		if opts.ClientCAs, err = loadPool(f.clientCA); err != nil {
			return opts, err
		}
	}
	if f.clientCert != "" {
		pair, err := tls.LoadX509KeyPair(f.clientCert, f.ck)
		if err != nil {
			return opts, fmt.Errorf("client certificate: %w", err)
		}
		opts.ClientCert = &pair
	}
	for i, b := range f.backends {
		name, url, named := strings.Cut(b, "=")
		if !named {
			name, url = fmt.Sprintf("backend-%d", i+1), b
		}
		opts.Backends = append(opts.Backends, faultproxy.Backend{Name: name, URL: url, CAs: cas})
	}
	return opts, nil
}

func loadPool(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("CA file %s: no certificate in it", file)
	}
	return pool, nil
}

func run(cmd *cobra.Command, f flags) error {
	addr, err := netip.ParseAddrPort(f.control)
	if err != nil || !addr.Addr().IsLoopback() {
		return fmt.Errorf("control address %q is not a loopback address:port", f.control)
	}
	opts, err := f.options()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.control)
	if err != nil {
		return fmt.Errorf("control API: %w", err)
	}
	defer listener.Close()
	p, err := faultproxy.Start(cmd.Context(), opts)
	if err != nil {
		return err
	}
	defer p.Close()
	server := &http.Server{Handler: newControl(p), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Fprintf(cmd.OutOrStdout(), "proxy=%s\ncontrol=http://%s\n", p.URL(), listener.Addr())
	select {
	case <-cmd.Context().Done():
		return server.Close()
	case err := <-served:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("control API: %w", err)
	}
}
