// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import cliflag "k8s.io/component-base/cli/flag"

var moreFlags func(*cliflag.NamedFlagSets)

// AddFlags has commands that are made from now on have the flags that add registers, in their help and on /flagz, too. nil
// restores upstream's behaviour.
func AddFlags(add func(*cliflag.NamedFlagSets)) { moreFlags = add }

func addFlags(sets *cliflag.NamedFlagSets) {
	if moreFlags != nil {
		moreFlags(sets)
	}
}
