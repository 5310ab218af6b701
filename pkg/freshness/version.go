// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// maxDigits of an RV: one of etcd has 19 at most.
const maxDigits = 64

// comparableRV is false for what apimachinery cannot compare (KEP-5504): an empty RV,
// "0", a leading zero, anything but digits; and for what is longer than any server's.
func comparableRV(rv string) bool {
	if len(rv) > maxDigits {
		return false
	}
	_, err := resourceversion.CompareResourceVersion(rv, rv)
	return err == nil
}

// Passed is true if rv is at or past target; false if they cannot be compared.
func Passed(rv, target string) bool {
	if rv == "" || target == "" {
		return false // Without making an error: each look at a cache that nothing was ever proven of comes here.
	}
	c, err := resourceversion.CompareResourceVersion(rv, target)
	return err == nil && c >= 0
}

// Less is true if both can be compared and a is below b.
func Less(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

// Distance is b-a in changes to any resource, or 0 if that is negative or does not fit.
func Distance(a, b string) uint64 {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	if errA != nil || errB != nil || y < x {
		return 0
	}
	return y - x
}
