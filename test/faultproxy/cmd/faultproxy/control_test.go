// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fresh-kcm/fresh-kcm/test/faultproxy"
)

func startProxy(t *testing.T) *faultproxy.Proxy {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	p, err := faultproxy.Start(context.Background(), faultproxy.Options{
		ServingCert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		Backends:    []faultproxy.Backend{{Name: "a", URL: "https://127.0.0.1:1"}},
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func TestControl(t *testing.T) {
	p := startProxy(t)
	h := newControl(p)
	call := func(method, path, body string) *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
		return rec
	}
	effects := []string{"Hold", "Delay", "StopReading", "DropStream", "DropEvents", "DoubleEvents", "ReorderEvents", "SuppressBookmarks", "Gone", "TooLargeRV", "TooManyRequests", "LoseAnswers", "CutAnswers", "BlackHole"}
	for _, e := range effects {
		rec := call("POST", "/faults", `{"effect":"`+e+`","resource":"nodes","by":"10s"}`)
		require.Equal(t, http.StatusCreated, rec.Code, rec.Body)
		var s faultproxy.Stats
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &s))
		require.Equal(t, e, s.Effect)
	}
	var got stats
	require.NoError(t, json.Unmarshal(call("GET", "/stats?resource=nodes", "").Body.Bytes(), &got))
	require.Len(t, got.Faults, len(effects))
	require.NotNil(t, got.Progress)

	require.Equal(t, http.StatusOK, call("PUT", "/faults/2", `{"by":"1s"}`).Code)
	require.Equal(t, http.StatusBadRequest, call("PUT", "/faults/1", `{"by":"1s"}`).Code)
	require.Equal(t, http.StatusOK, call("POST", "/backend", `{"name":"a"}`).Code)
	for _, f := range got.Faults {
		require.Equal(t, http.StatusOK, call("DELETE", "/faults/"+f.ID, "").Code)
	}
	require.Empty(t, p.Faults())

	require.Equal(t, http.StatusNotFound, call("DELETE", "/faults/1", "").Code)
	for _, body := range []string{`{"effect":"Hold"}`, `{"effect":"Hodl","resource":"nodes"}`, `{"effect":"Delay","resource":"nodes","for":"1s"}`, `{`} {
		require.Equal(t, http.StatusBadRequest, call("POST", "/faults", body).Code, body)
	}
	require.Equal(t, http.StatusBadRequest, call("POST", "/backend", `{"name":"b"}`).Code)
	require.Equal(t, http.StatusOK, call("GET", "/journal", "").Code)
}

func TestBadFlags(t *testing.T) {
	tests := map[string][]string{
		"required flag":  {},
		"not a loopback": {"--backend=https://127.0.0.1:1", "--cert=x", "--key=x", "--ca=x", "--control=0.0.0.0:0"},
		"serving":        {"--backend=https://127.0.0.1:1", "--cert=missing", "--key=missing", "--ca=missing"},
		"unknown":        {"hold"},
	}
	for want, args := range tests {
		t.Run(want, func(t *testing.T) {
			cmd := newCommand()
			var out bytes.Buffer
			cmd.SetArgs(args)
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			err := cmd.ExecuteContext(t.Context())
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "\n")
			require.Empty(t, out.String())
		})
	}
}
