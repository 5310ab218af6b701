// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

import (
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// bigLo marks a version that is kept as text because it has more than 19
// digits. Any such number is greater than every number of up to 19 digits, so
// comparing lo alone orders the two kinds correctly.
const bigLo = math.MaxUint64

// version is a comparable resource version. The zero version is "nothing seen".
type version struct {
	lo  uint64
	big string
}

// parseFast reads what etcd writes: 1 to 19 digits without a leading zero. It
// accepts a subset of what apimachinery accepts and never more.
func parseFast(rv string) (uint64, bool) {
	if len(rv) == 0 || len(rv) > 19 || rv[0] == '0' {
		return 0, false
	}
	var v uint64
	for i := 0; i < len(rv); i++ {
		d := rv[i] - '0'
		if d > 9 {
			return 0, false
		}
		v = v*10 + uint64(d)
	}
	return v, true
}

// parseVersion reports false for what apimachinery cannot compare (KEP-5504):
// an empty RV, "0", a leading zero, anything but digits.
func parseVersion(rv string) (version, bool) {
	if lo, ok := parseFast(rv); ok {
		return version{lo: lo}, true
	}
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		return version{}, false
	}
	return version{lo: bigLo, big: rv}, true
}

func (v version) compare(w version) int {
	switch {
	case v.lo < w.lo:
		return -1
	case v.lo > w.lo:
		return 1
	case v.lo != bigLo:
		return 0
	}
	// Both were accepted by CompareResourceVersion when they were parsed.
	c, _ := resourceversion.CompareResourceVersion(v.big, w.big)
	return c
}

func (v version) less(w version) bool { return v.compare(w) < 0 }
func (v version) isZero() bool        { return v.lo == 0 }

func maxVersion(v, w version) version {
	if v.less(w) {
		return w
	}
	return v
}

func (v version) String() string {
	switch v.lo {
	case 0:
		return ""
	case bigLo:
		return v.big
	}
	return strconv.FormatUint(v.lo, 10)
}
