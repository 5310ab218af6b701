// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Command suites runs the compiled tests of upstream's packages and turns what they and upstream's e2e suites
// did on each arm into a page.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage:
  suites run -records FILE -results DIR -arm ARM -package NAME -code COMMIT -- BINARY [FLAG...]
  suites unit -records FILE [-arm ARM] -code COMMIT <OUTPUT OF go test -json
  suites e2e -records FILE -results DIR -arm ARM -choice FILE [-suite TEXT] -code COMMIT -- COMMAND [FLAG...]
  suites page -records FILE -choice FILE
  suites regressions -records FILE -choice FILE`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("what to do is missing\n%s", usage)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	records := flags.String("records", "", "file of what is kept of every run")
	results := flags.String("results", "", "directory for what a run prints")
	choice := flags.String("choice", "", "file that says what of upstream's e2e suites is run, and why not the rest")
	switch args[0] {
	case "run":
		r := runner{out: os.Stdout}
		flags.StringVar(&r.arm, "arm", "", "arm that the binary is of")
		flags.StringVar(&r.pkg, "package", "", "short name of the package")
		flags.StringVar(&r.code, "code", "", "commit of the code under test")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *records == "" || *results == "" || r.arm == "" || r.pkg == "" || flags.NArg() == 0 {
			return fmt.Errorf("-records, -results, -arm, -package or the binary is missing\n%s", usage)
		}
		r.records, r.dir, r.command = *records, *results, flags.Args()
		return r.run(ctx)
	case "unit":
		u := unitRunner{out: os.Stdout}
		flags.StringVar(&u.arm, "arm", "", "arm of all tests, unless they say it")
		flags.StringVar(&u.code, "code", "", "commit of the code under test")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *records == "" {
			return fmt.Errorf("-records is missing\n%s", usage)
		}
		u.records = *records
		return u.run(os.Stdin)
	case "e2e":
		r := e2eRunner{}
		flags.StringVar(&r.arm, "arm", "", "arm that the cluster is of")
		flags.StringVar(&r.filter, "suite", "", "run only the patterns that contain this")
		flags.StringVar(&r.code, "code", "", "commit of the code under test")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if *records == "" || *results == "" || r.arm == "" || flags.NArg() == 0 {
			return fmt.Errorf("-records, -results, -arm or the command is missing\n%s", usage)
		}
		var err error
		if r.choice, err = readChoice(*choice); err != nil {
			return err
		}
		r.records, r.dir, r.command = *records, *results, flags.Args()
		return r.run(ctx)
	case "page", "regressions":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		kept, err := readRecords(*records)
		if err != nil {
			return err
		}
		chosen, err := readChoice(*choice)
		if err != nil {
			return err
		}
		if args[0] == "regressions" {
			return regressions(kept, chosen)
		}
		return page(os.Stdout, kept, chosen)
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}
