// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newKey(t *testing.T) (file string, key, allowedSigners []byte) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "keys", "key")
	key, err := TestKey(file)
	require.NoError(t, err)
	allowedSigners, err = AllowedSigner("test@example.org", key)
	require.NoError(t, err)
	return file, key, allowedSigners
}

func TestVerify(t *testing.T) {
	_, key, allowedSigners := newKey(t)
	_, otherKey, otherSigners := newKey(t)
	data := []byte("sums")
	signed, err := Sign(key, data)
	require.NoError(t, err)
	byOther, err := Sign(otherKey, data)
	require.NoError(t, err)

	for name, c := range map[string]struct {
		allowedSigners, signed, data []byte
		refused                      string
	}{
		"good":                     {allowedSigners: allowedSigners, signed: signed, data: data},
		"one of several, comments": {allowedSigners: append([]byte("# who may sign\n\n"), append(otherSigners, allowedSigners...)...), signed: signed, data: data},
		"changed contents":         {allowedSigners: allowedSigners, signed: signed, data: []byte("sum"), refused: "not of these contents"},
		"another key":              {allowedSigners: allowedSigners, signed: byOther, data: data, refused: "not of an allowed signer"},
		"no signers":               {signed: signed, data: data, refused: "not of an allowed signer"},
		"broken signers":           {allowedSigners: []byte("test@example.org"), signed: signed, data: data, refused: "the line of test@example.org has no key"},
		"signers with a condition": {allowedSigners: bytes.Replace(allowedSigners, []byte("namespaces"), []byte(`valid-before="20200101",namespaces`), 1), signed: signed, data: data, refused: "which only ssh-keygen -Y verify heeds"},
		"no signature":             {allowedSigners: allowedSigners, data: data, refused: "not an SSH signature"},
	} {
		t.Run(name, func(t *testing.T) {
			signer, err := Verify(c.allowedSigners, c.signed, c.data)
			if c.refused != "" {
				assert.ErrorContains(t, err, c.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "test@example.org", signer.Name)
			assert.Contains(t, signer.Fingerprint, "SHA256:")
		})
	}
}

// What ssh-keygen signs we verify, and the other way round.
func TestLikeSSHKeygen(t *testing.T) {
	keygen, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Skip("ssh-keygen is missing: install OpenSSH")
	}
	keyFile, key, allowedSigners := newKey(t)
	dir := t.TempDir()
	data := []byte("sums")
	write := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, data, 0o600))
		return file
	}
	signed, err := Sign(key, data)
	require.NoError(t, err)
	verify := exec.Command(keygen, "-Y", "verify", "-n", "file", "-I", "test@example.org", "-f", write("allowed", allowedSigners), "-s", write("ours.sig", signed))
	verify.Stdin = bytes.NewReader(data)
	out, err := verify.CombinedOutput()
	assert.NoError(t, err, string(out))

	out, err = exec.Command(keygen, "-Y", "sign", "-n", "file", "-f", keyFile, write("sums", data)).CombinedOutput()
	require.NoError(t, err, string(out))
	theirs, err := os.ReadFile(filepath.Join(dir, "sums.sig"))
	require.NoError(t, err)
	_, err = Verify(allowedSigners, theirs, data)
	assert.NoError(t, err)
}

func TestTestKey(t *testing.T) {
	file, key, _ := newKey(t)
	again, err := TestKey(file)
	require.NoError(t, err)
	assert.Equal(t, key, again)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestSignWithoutKey(t *testing.T) {
	_, err := Sign([]byte("no key"), nil)
	assert.ErrorContains(t, err, "not a private key of OpenSSH's")
}
