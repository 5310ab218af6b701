// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import (
	"errors"
	"syscall"
)

// sysProcAttr asks for nothing: only Linux can tie a child's life to its parent's.
func sysProcAttr() *syscall.SysProcAttr { return nil }

func fork(start func() error) error { return start() }

func pauseProcess(*process) error  { return errors.ErrUnsupported }
func resumeProcess(*process) error { return nil }

func processGroupGone(int) error { return nil }
