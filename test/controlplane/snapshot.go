// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

const etcdutlBinary = "etcdutl"

// SnapshotEtcd writes a snapshot of the running etcd to a file, as etcdctl snapshot save does: through the
// maintenance API, with the checksum at its end that a restore verifies.
func (c *Cluster) SnapshotEtcd(ctx context.Context, path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("snapshot of etcd: %w", err)
		}
	}()
	client, err := etcdHTTPClient(c.pki)
	if err != nil {
		return err
	}
	url := "https://" + c.etcd[0].ports[0].addr() + "/v3/maintenance/snapshot"
	resp, err := ask(ctx, client, url, []byte("{}"))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	// The gateway of etcd's gRPC API makes each message of the stream one JSON object.
	for messages := json.NewDecoder(resp.Body); ; {
		var message struct {
			Result struct {
				Blob []byte `json:"blob"`
			} `json:"result"`
			Error json.RawMessage `json:"error"`
		}
		if err := messages.Decode(&message); errors.Is(err, io.EOF) {
			return f.Close()
		} else if err != nil {
			return err
		}
		if message.Error != nil {
			return fmt.Errorf("etcd says %s", message.Error)
		}
		if _, err := f.Write(message.Result.Blob); err != nil {
			return err
		}
	}
}

// RestoreEtcd ends apiservers and etcd, has etcdutl restore a snapshot, and starts them again, with the rest
// of the cluster as in WithEtcdStopped. Resource versions go on from the snapshot's, so that they go backward;
// args may forbid that: --bump-revision=N, --mark-compacted.
func (c *Cluster) RestoreEtcd(ctx context.Context, path string, args ...string) error {
	return c.WithEtcdStopped(ctx, func(dataDir string) error {
		if err := os.RemoveAll(dataDir); err != nil {
			return err
		}
		peerURL := "https://" + c.etcd[0].ports[1].addr()
		args := append([]string{
			"snapshot", "restore", path, "--data-dir=" + dataDir, "--name=etcd",
			"--initial-cluster=etcd=" + peerURL, "--initial-advertise-peer-urls=" + peerURL,
		}, args...)
		out, err := exec.CommandContext(ctx, c.BinPath(etcdutlBinary), args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s %s: %w: %.1000s", etcdutlBinary, strings.Join(args, " "), err, out)
		}
		return nil
	})
}
