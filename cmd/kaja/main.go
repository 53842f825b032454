package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kajamq/kaja/broker"
)

// Exit codes.
const (
	exitOK    = 0
	exitFatal = 1
	exitUsage = 2
	// Of the commands that speak to a broker.
	exitNotFound    = 3
	exitDenied      = 4
	exitUnreachable = 5
)

func main() {
	started := time.Now()
	// A reader of the log that goes away must not take the broker with it.
	signal.Ignore(syscall.SIGPIPE)
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: os.Environ(), started: started,
		terminal: term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("NO_COLOR") == "",
		readFile: os.ReadFile, hostname: os.Hostname, signals: watchSignals(), exit: os.Exit, newNode: newBroker,
	}
	os.Exit(a.run(os.Args[1:]))
}

// app is the process as the commands see it, so that tests can be it.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
	started        time.Time // of the process
	terminal       bool      // stderr is one that shows colours
	readFile       func(string) ([]byte, error)
	hostname       func() (string, error)
	signals        <-chan os.Signal
	exit           func(code int) // ends the process at once
	newNode        newNode
}

// run executes one command line and gives the exit code.
func (a *app) run(args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	failed, ok := errors.AsType[*failure](err)
	if !ok { // cobra's own errors are about the command line
		_, _ = fmt.Fprintf(a.stderr, "kaja: %v\nRun \"kaja --help\" for what there is.\n", err)
		return exitUsage
	}
	a.explain(failed.err)
	return failed.code
}

// failure is an error of a command, as opposed to one of the command line.
type failure struct {
	err  error
	code int
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// explain writes what went wrong, a line for each thing, and what to do about it.
func (a *app) explain(err error) {
	for line := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintf(a.stderr, "kaja: %s\n", line)
	}
	if e, ok := errors.AsType[*broker.StartError](err); ok && e.Todo != "" {
		_, _ = fmt.Fprintf(a.stderr, "      %s\n", e.Todo)
	}
	if e, ok := errors.AsType[*advised](err); ok {
		_, _ = fmt.Fprintf(a.stderr, "      %s\n", e.todo)
	}
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "kaja",
		Short:         "An Apache-Kafka-compatible broker",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.AddCommand(a.startCommand(), a.topicCommand(), a.groupCommand(), a.produceCommand(), a.consumeCommand(), a.txnCommand(), a.nodeCommand(),
		a.clusterCommand(), a.doctorCommand(), a.logCommand(), a.versionCommand(), a.docsCommand())
	return root
}
