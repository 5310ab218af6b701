// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	restclient "k8s.io/client-go/rest"
)

var requestInfo = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// endpoint is where an apiserver's paths begin: empty, or such as /k8s/clusters/x behind a proxy.
type endpoint string

// endpointOf returns the endpoint of a client's configuration.
func endpointOf(config *restclient.Config) (endpoint, error) {
	base, _, err := restclient.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("address of the apiserver: %w", err)
	}
	return endpoint(strings.TrimRight(base.Path, "/")), nil
}

// resource says which resource a request is for, and what it asks of it; nil if it is for none.
func (e endpoint) resource(req *http.Request) *request.RequestInfo {
	path, ok := strings.CutPrefix(req.URL.Path, string(e))
	if !ok || !strings.HasPrefix(path, "/") {
		return nil
	}
	relative := *req.URL
	relative.Path, relative.RawPath = path, ""
	info, err := requestInfo.NewRequestInfo(&http.Request{Method: req.Method, URL: &relative, Header: req.Header})
	if err != nil || !info.IsResourceRequest {
		return nil
	}
	return info
}
