package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// adminTimeout bounds one admin command.
	adminTimeout = 30 * time.Second
	// reachTimeout bounds the first connection to one bootstrap server.
	reachTimeout = 3 * time.Second
)

// adminFlags are what every admin command takes.
type adminFlags struct {
	servers string
	json    bool
}

func (f *adminFlags) register(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&f.servers, "bootstrap-server", "b", "localhost:9092", "brokers to start from, `host:port`, separated by commas")
	cmd.PersistentFlags().BoolVar(&f.json, "json", false, "print JSON")
}

// seeds is the bootstrap servers; a missing port is Kafka's usual one.
func (f *adminFlags) seeds() []string {
	var out []string
	for s := range strings.SplitSeq(f.servers, ",") {
		s = strings.TrimSpace(s)
		if s == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(s); err != nil {
			s = net.JoinHostPort(strings.Trim(s, "[]"), "9092")
		}
		out = append(out, s)
	}
	return out
}

// adminCommands is what the commands share that speak the public protocol, to any broker.
type adminCommands struct {
	*app
	adminFlags
}

// noun is a command that only groups others.
func (c *adminCommands) noun(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.register(cmd)
	cmd.AddCommand(subs...)
	return cmd
}

// with runs do with a client for at most adminTimeout.
func (c *adminCommands) with(do func(ctx context.Context, client *kgo.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	return c.withClient(ctx, do)
}

// withClient runs do with a client; what goes wrong is a failure of the command, with advice where there is some. A server
// that cannot be reached is told at once and not after the client's own retries.
func (c *adminCommands) withClient(ctx context.Context, do func(ctx context.Context, client *kgo.Client) error, opts ...kgo.Opt) error {
	seeds := c.seeds()
	opts = append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.ClientID("kaja-cli"), kgo.RetryTimeout(adminTimeout / 2)}, opts...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return &failure{err: err, code: exitUsage}
	}
	defer client.Close()
	ctx, done := c.interruptible(ctx)
	defer done()
	if err := reach(ctx, seeds); err != nil {
		return &failure{err: err, code: exitUnreachable}
	}
	if err := do(ctx, client); err != nil {
		return adminFailure(err)
	}
	return nil
}

// reach reports why no bootstrap server takes a connection; nil if one does.
func reach(ctx context.Context, seeds []string) error {
	var errs []error
	for _, s := range seeds {
		dialing, cancel := context.WithTimeout(ctx, reachTimeout)
		conn, err := (&net.Dialer{}).DialContext(dialing, "tcp", s)
		cancel()
		if err == nil {
			return conn.Close()
		}
		errs = append(errs, fmt.Errorf("connect to %s: %s", s, dialReason(err)))
	}
	return &advised{errors.Join(errs...), `Is a broker running there? "kaja start" starts one here; --bootstrap-server names another. "kaja doctor" looks closer.`}
}

// dialReason is the innermost text of a failed connection.
func dialReason(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return "the name " + dns.Name + " cannot be resolved: " + dns.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if op.Timeout() {
			return "no answer within " + reachTimeout.String()
		}
		return strings.TrimPrefix(op.Err.Error(), "connect: ")
	}
	return err.Error()
}

// advised is an error with a line about what to do.
type advised struct {
	err  error
	todo string
}

func (a *advised) Error() string { return a.err.Error() }
func (a *advised) Unwrap() error { return a.err }

// advice is what to do about an error of a broker, by its name.
var advice = []struct {
	err  error
	code int
	todo string
}{
	{kerr.UnknownTopicOrPartition, exitNotFound, `"kaja topic list" shows the topics there are.`},
	{kerr.GroupIDNotFound, exitNotFound, `"kaja group list" shows the groups there are.`},
	{kerr.TopicAlreadyExists, exitFatal, `"kaja topic alter" changes a topic; --if-not-exists makes this no error.`},
	{kerr.NonEmptyGroup, exitFatal, `Stop the group's members first; "kaja group describe" shows who they are.`},
	{kerr.InvalidReplicationFactor, exitFatal, `"kaja cluster info" shows the brokers there are.`},
	{kerr.InvalidConfig, exitFatal, "docs/config.md lists the topic configs and their bounds."},
	{kerr.TopicAuthorizationFailed, exitDenied, ""},
	{kerr.GroupAuthorizationFailed, exitDenied, ""},
	{kerr.ClusterAuthorizationFailed, exitDenied, ""},
	{context.DeadlineExceeded, exitUnreachable, `"kaja doctor" says which brokers can be reached from here.`},
}

// adminFailure gives an error its exit code and its advice.
func adminFailure(err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	for _, a := range advice {
		if !errors.Is(err, a.err) {
			continue
		}
		if _, ok := errors.AsType[*advised](err); !ok && a.todo != "" {
			err = &advised{err, a.todo}
		}
		return &failure{err: err, code: a.code}
	}
	return &failure{err: err, code: exitFatal}
}

// refused is what a broker said to something: its own words if it gave some, else the code's.
func refused(what string, err error, message string) error {
	if err == nil {
		return nil
	}
	if message == "" || strings.Contains(err.Error(), message) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if k, ok := errors.AsType[*kerr.Error](err); ok {
		return &told{what, message, k}
	}
	return fmt.Errorf("%s: %s: %w", what, message, err)
}

// told is an error in the broker's own words.
type told struct {
	what, message string
	code          *kerr.Error
}

func (e *told) Error() string { return e.what + ": " + e.code.Message + ": " + e.message }
func (e *told) Unwrap() error { return e.code }

// print writes v as JSON, or rows as a table.
func (c *adminCommands) print(v any, header string, rows [][]string) error {
	if c.json {
		return c.printJSON(v)
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, header)
	for _, r := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

func (c *adminCommands) printJSON(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// say writes a note for people; there is none with --json.
func (c *adminCommands) say(format string, args ...any) {
	if !c.json {
		_, _ = fmt.Fprintf(c.stdout, format+"\n", args...)
	}
}

// admin wraps a client; closing it is the client's owner's part.
func admin(client *kgo.Client) *kadm.Client { return kadm.NewClient(client) }

// joinInts writes numbers as Kafka's tools do.
func joinInts(n []int32) string {
	out := make([]string, len(n))
	for i, v := range n {
		out[i] = fmt.Sprint(v)
	}
	return strings.Join(out, ",")
}

// sorted is a sorted copy, never nil.
func sorted(n []int32) []int32 {
	out := append([]int32{}, n...)
	slices.Sort(out)
	return out
}
