// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// The range lies below the one from which Linux takes the ports of outgoing connections, so that a
// component that is down for a restart does not lose its port to some client.
const (
	firstPort = 20000
	lastPort  = 31999
)

// portLease is a loopback port that no other cluster on this machine will choose while it is held.
type portLease struct {
	port int
	lock *os.File
}

// leasePort chooses a free port. Between the choice and the component's bind only a stranger can take
// it, or another user of the machine; other processes of this user are kept off by a lock file.
func leasePort() (*portLease, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("fresh-kcm-ports-%d", os.Getuid()))
	if err := privateFolder(dir); err != nil {
		return nil, fmt.Errorf("leasing a port: %w", err)
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR|noFollow, 0o600)
		if err != nil {
			return nil, fmt.Errorf("leasing port %d: %w", port, err)
		}
		lease := &portLease{port: port, lock: lock}
		if err := tryLock(lock); err != nil {
			lease.release()
			continue
		}
		probe, err := net.Listen("tcp", lease.addr())
		if err != nil {
			lease.release()
			continue
		}
		probe.Close()
		return lease, nil
	}
	return nil, errors.New("leasing a port: none free")
}

// privateFolder makes a folder that only this user may write to, or checks that it is one. The folder above may be
// open to all, as /tmp is.
func privateFolder(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir) // A symlink is not followed.
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s is open to others: mode %#o", dir, info.Mode().Perm())
	case !isOurs(info):
		return fmt.Errorf("%s belongs to another user", dir)
	}
	return nil
}

func (l *portLease) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)) }

// release gives the port back. The lock file stays: removing it would race with the next to lock it.
func (l *portLease) release() { l.lock.Close() }
