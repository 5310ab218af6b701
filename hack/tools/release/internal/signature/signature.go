// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signature signs and verifies as `ssh-keygen -Y sign -n file` and `ssh-keygen -Y verify -n file` do.
package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// namespace keeps a signature of a file from being taken for one of anything else.
const namespace = "file"

// namespaceOption is the only option of an allowed signer that Verify knows.
const namespaceOption = `namespaces="` + namespace + `"`

// Sign signs data with a private key in OpenSSH's form.
func Sign(key, data []byte) ([]byte, error) {
	signer, err := ssh.ParsePrivateKey(key)
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		return nil, errors.New("the key has a passphrase: sign with ssh-keygen -Y sign, as docs/release.md says")
	}
	if err != nil {
		return nil, fmt.Errorf("the key is not a private key of OpenSSH's: %w", err)
	}
	signed, err := sshsig.Sign(bytes.NewReader(data), signer, sshsig.HashSHA512, namespace)
	if err != nil {
		return nil, err
	}
	return sshsig.Armor(signed), nil
}

// Signer is somebody whose signature was found to be good.
type Signer struct {
	Name        string // as in the file of allowed signers
	Fingerprint string // as ssh-keygen -l shows it
}

// Verify returns who of the allowed signers, a file in the form of ssh-keygen(1), has signed data.
func Verify(allowedSigners, signed, data []byte) (Signer, error) {
	parsed, err := sshsig.Unarmor(signed)
	if err != nil {
		return Signer{}, fmt.Errorf("not an SSH signature: %w", err)
	}
	signers, err := parseAllowed(allowedSigners)
	if err != nil {
		return Signer{}, err
	}
	fingerprint := ssh.FingerprintSHA256(parsed.PublicKey)
	i := slices.IndexFunc(signers, func(a allowed) bool { return bytes.Equal(a.key.Marshal(), parsed.PublicKey.Marshal()) })
	if i < 0 {
		return Signer{}, fmt.Errorf("signed with the key %s, which is not of an allowed signer", fingerprint)
	}
	if err := sshsig.Verify(bytes.NewReader(data), parsed, signers[i].key, parsed.HashAlgorithm, namespace); err != nil {
		return Signer{}, fmt.Errorf("the signature is not of these contents: %w", err)
	}
	return Signer{Name: signers[i].name, Fingerprint: fingerprint}, nil
}

type allowed struct {
	name string
	key  ssh.PublicKey
}

func parseAllowed(data []byte) ([]allowed, error) {
	var all []allowed
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		key, _, options, _, err := ssh.ParseAuthorizedKey([]byte(rest))
		if err != nil {
			return nil, fmt.Errorf("allowed signers: the line of %s has no key: %w", name, err)
		}
		for _, option := range options {
			if option != namespaceOption {
				return nil, fmt.Errorf("allowed signers: %s has the option %s, which only ssh-keygen -Y verify heeds", name, option)
			}
		}
		all = append(all, allowed{name: name, key: key})
	}
	return all, nil
}

// AllowedSigner is the line of the key's holder in a file of allowed signers.
func AllowedSigner(name string, key []byte) ([]byte, error) {
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s %s %s", name, namespaceOption, ssh.MarshalAuthorizedKey(signer.PublicKey())), nil
}

// TestKey reads a key that only its owner can read, and makes it if there is none.
func TestKey(file string) ([]byte, error) {
	key, err := os.ReadFile(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	block, err := ssh.MarshalPrivateKey(private, "test key of Fresh KCM")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	key = pem.EncodeToMemory(block)
	return key, os.WriteFile(file, key, 0o600)
}
