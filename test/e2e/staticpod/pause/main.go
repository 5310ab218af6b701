// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause does nothing until it is told to end: the sandbox of each pod of the static pod's test runs it, and so do
// the pods of its DaemonSet.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
