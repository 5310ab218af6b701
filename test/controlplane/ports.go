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
// it; other users of this package are kept off by a lock file, whichever process they are in.
func leasePort() (*portLease, error) {
	dir := filepath.Join(os.TempDir(), "fresh-kcm-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("leasing a port: %w", err)
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o666)
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

func (l *portLease) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.port)) }

// release gives the port back. The lock file stays: removing it would race with the next to lock it.
func (l *portLease) release() { l.lock.Close() }
