// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// maxRV is the greatest unsigned integer of 128 bits, which no resource version may exceed.
var maxRV = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))

// inRange returns an error unless the resource version is a number that KEP-5504 allows.
func inRange(rv string) error {
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		return fmt.Errorf("resource version %q: %w", rv, err)
	}
	n, ok := new(big.Int).SetString(rv, 10)
	if !ok || n.Cmp(maxRV) > 0 {
		return fmt.Errorf("resource version %q is not a number up to %s", rv, maxRV)
	}
	return nil
}

// before returns an error unless the first resource version is allowed and compares below the second, which is.
func before(first, second string) error {
	for _, rv := range []string{first, second} {
		if err := inRange(rv); err != nil {
			return err
		}
	}
	got, err := resourceversion.CompareResourceVersion(first, second)
	if err != nil {
		return err
	}
	if got != -1 {
		return fmt.Errorf("resource version %s does not compare below %s", first, second)
	}
	return nil
}

// notAfter returns an error unless the first resource version compares below or equal to the second.
func notAfter(first, second string) error {
	if first == second {
		return inRange(first)
	}
	return before(first, second)
}

// TestHelperFunction: KEP-5504, "Helper Function".
//
//conformance:kep-5504 Helper Function: numbers of any size are ordered
//conformance:kep-5504 Helper Function: what is no number, or begins with 0, is an error
//conformance:kep-5504 Conformance Tests: no version is above 2^128 - 1
func TestHelperFunction(t *testing.T) {
	long := strings.Repeat("9", 60)
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"1", "1", 0}, {"1", "2", -1}, {"9", "10", -1}, {"10", "9", 1}, {"100", "99", 1},
		{maxRV.String(), maxRV.String(), 0}, {"18446744073709551615", "18446744073709551616", -1},
		{long, long + "0", -1}, // no limit of size
	} {
		got, err := resourceversion.CompareResourceVersion(test.a, test.b)
		require.NoError(t, err, test)
		require.Equal(t, test.want, got, test)
	}
	for _, bad := range []string{"", "0", "01", "-1", "+1", "1.0", "1e3", " 1", "a", "0x1", "1a", "١"} {
		_, err := resourceversion.CompareResourceVersion(bad, "1")
		require.Error(t, err, "%q", bad)
		_, err = resourceversion.CompareResourceVersion("1", bad)
		require.Error(t, err, "%q", bad)
	}
	require.Error(t, inRange(new(big.Int).Add(maxRV, big.NewInt(1)).String()))
	require.NoError(t, inRange(maxRV.String()))
	require.Error(t, before("2", "2"))
	require.Error(t, before("2", "1"))
}
