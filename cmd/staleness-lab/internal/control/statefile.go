// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// state is what the file says of a running lab.
type state struct {
	PID   int    `json:"pid"`
	URL   string `json:"url"`
	Token string `json:"token"`
}

// DefaultStateFile is _output/staleness-lab.json of the checkout whose binaries the lab runs.
func DefaultStateFile() (string, error) {
	binDir, err := controlplane.FindBinDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(binDir), "staleness-lab.json"), nil
}

// stateFile is the file while its lab runs. The lab holds a lock on it, which ends with the process: what a killed lab
// leaves behind is no lab.
type stateFile struct{ file *os.File }

func createStateFile(path string) (*stateFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the state file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the state file: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		running, _ := decode(f)
		return nil, errors.Join(fmt.Errorf("a lab runs already (pid %d): stop it, or give this one a --state-file of its own", running.PID), f.Close())
	}
	return &stateFile{f}, f.Chmod(0o600) // it may be there from before, with another mode
}

func (s *stateFile) write(st state) error {
	text, err := json.Marshal(st)
	if err == nil {
		err = s.file.Truncate(0)
	}
	if err == nil {
		_, err = s.file.WriteAt(text, 0)
	}
	if err != nil {
		return fmt.Errorf("writing the state file: %w", err)
	}
	return nil
}

func (s *stateFile) remove() error {
	return errors.Join(os.Remove(s.file.Name()), s.file.Close())
}

// readStateFile returns the state of the lab that runs.
func readStateFile(path string) (state, error) {
	none := fmt.Errorf("no lab runs here: start one with \"make run\" in another terminal (state file %s)", path)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, none
	}
	if err != nil {
		return state{}, fmt.Errorf("reading the state file: %w", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
		return state{}, none // nobody holds it
	}
	st, err := decode(f)
	if err != nil {
		return state{}, fmt.Errorf("reading the state file %s: %w", path, err)
	}
	if st.URL == "" {
		return state{}, fmt.Errorf("the lab is still starting: wait until it is ready")
	}
	return st, nil
}

func decode(f *os.File) (st state, err error) {
	if err := json.NewDecoder(f).Decode(&st); err != nil && !errors.Is(err, io.EOF) {
		return state{}, err
	}
	return st, nil
}
