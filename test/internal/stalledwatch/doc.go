// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stalledwatch holds watches of kube-controller-manager's informers, of many resources at once, and measures how soon
// its page of caches says so.
package stalledwatch
