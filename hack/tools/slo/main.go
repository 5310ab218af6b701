// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes.
const (
	exitMissed = 1
	exitError  = 2
)

var errMissed = errors.New("an SLO is missed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errMissed):
		os.Exit(exitMissed)
	case err != nil:
		fmt.Fprintln(os.Stderr, "slo:", err)
		os.Exit(exitError)
	}
}

func command(ctx context.Context, args []string, out, notes io.Writer) error {
	flags := flag.NewFlagSet("slo", flag.ContinueOnError)
	flags.SetOutput(notes)
	rules := flags.String("rules", "", "file with the recording rules, such as build/monitoring/slos.yaml")
	scrapes := flags.String("scrapes", "", "folder with the scrapes of a run, files UNIX_MILLIS.prom")
	asJSON := flags.Bool("json", false, "print JSON in place of a table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rules == "" || *scrapes == "" || flags.NArg() > 0 {
		return errors.New("usage: slo -rules FILE -scrapes DIR [-json]")
	}
	folder, err := readFolder(*scrapes)
	if err != nil {
		return err
	}
	results, err := evaluate(ctx, *rules, folder, notes)
	if err != nil {
		return err
	}
	write := writeTable
	if *asJSON {
		write = writeJSON
	}
	if err := write(out, results); err != nil {
		return err
	}
	for _, r := range results {
		if r.Outcome == fail {
			return errMissed
		}
	}
	return nil
}
