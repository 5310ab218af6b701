// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	all, err := choose(nil)
	if err != nil || len(all) == 0 || slices.ContainsFunc(all, func(t target) bool { return t.asked }) {
		t.Errorf("no name means all that need not be asked for: %v %v", all, err)
	}
	if named, err := choose([]string{"kubelet"}); err != nil || len(named) != 1 {
		t.Errorf("asked for kubelet: %v %v", named, err)
	}
	if _, err := choose([]string{"kube-proxy"}); err == nil || !strings.Contains(err.Error(), `"kube-proxy"`) {
		t.Errorf("error %v", err)
	}
}
