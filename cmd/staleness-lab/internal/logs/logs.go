// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logs keeps the log lines of this process, and of the libraries in it, out of what it displays.
package logs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// ToFile sends everything logged from now on, with or without a context, to a file, which it makes with
// its directory. Only one file is in use at a time in a process. The function returned closes it; lines
// logged after that are lost.
func ToFile(ctx context.Context, path string) (context.Context, func() error, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return ctx, nil, fmt.Errorf("making the directory for the log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return ctx, nil, fmt.Errorf("opening the log: %w", err)
	}
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(f), textlogger.Verbosity(2)))
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	return klog.NewContext(ctx, logger), f.Close, nil
}
