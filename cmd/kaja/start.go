package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
)

// stopTimeout bounds a clean stop; then the process ends anyway, and the next start recovers.
const stopTimeout = 30 * time.Second

// node is a broker as the start command needs it.
type node interface {
	// Start returns when clients are served, or why they can't be. It gives up when ctx is done.
	Start(ctx context.Context) error
	// Wait returns when the node has ended by itself, with the reason.
	Wait() error
	// Close stops cleanly until ctx is done. It is called after Start, whatever came of it.
	Close(ctx context.Context) error
	// Screen says what a person wants to know about a started node.
	Screen(version string, took time.Duration, ignored int) broker.Screen
}

// newNode makes a node that is not started yet. The level is that of the logger.
type newNode func(*slog.Logger, *slog.LevelVar, *config.Config) (node, error)

// startFlags is what the command line of start gives.
type startFlags struct {
	file      string
	set       []string
	override  []string
	logFormat string
	logLevel  string
	// devCluster is the number of nodes in this process; 0: one, as ever.
	devCluster  int
	join, token string
}

func (a *app) startCommand() *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use:   "start [server.properties]",
		Short: "Run a broker until it is told to stop",
		Long: `Run a broker until it is told to stop.

Without any setting it listens on localhost:9092 and keeps its data in $XDG_DATA_HOME/kaja (~/.local/share/kaja).
Settings have Kafka's names. They come from, the later ones winning: the properties file, KAFKA_* environment
variables (KAFKA_LOG_RETENTION_MS is log.retention.ms), KAJA_* environment variables, and --set. docs/config.md lists
them all.

--dev-cluster 3 runs three nodes in this process, on three ports from the configured one on, with directories of their own.
--join and --token let the node join the cluster of a running one: "kaja node token" there prints them. Without a node.id
it takes the next free one. The same command line starts it again later.`,
		Example: `  kaja start
  kaja start --dev-cluster 3
  kaja start --set log.dirs=/var/lib/kaja --set listeners=PLAINTEXT://:9092
  kaja start /etc/kaja/server.properties`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				if f.file != "" {
					return errors.New("the properties file is given twice, as an argument and by --config")
				}
				f.file = args[0]
			}
			return a.start(cmd.Context(), f)
		},
	}
	cmd.Flags().StringVarP(&f.file, "config", "c", "", "properties `file`, as of Kafka")
	cmd.Flags().StringArrayVarP(&f.set, "set", "s", nil, "one setting, `name=value`; repeatable, the last one wins")
	cmd.Flags().StringArrayVar(&f.override, "override", nil, "the same, by Kafka's name for it")
	cmd.Flags().StringVar(&f.logFormat, "log-format", "", "auto, text or json (kaja.log.format)")
	cmd.Flags().StringVar(&f.logLevel, "log-level", "", "debug, info, warn or error (kaja.log.level)")
	cmd.Flags().IntVar(&f.devCluster, "dev-cluster", 0, "run `n` nodes in this process, as one cluster")
	cmd.Flags().StringVar(&f.join, "join", "", "join the cluster of the node at `host:port`")
	cmd.Flags().StringVar(&f.token, "token", "", "what the node that is joined has printed by \"kaja node token\"")
	return cmd
}

// start loads the settings and runs the node.
func (a *app) start(ctx context.Context, f startFlags) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if _, err := f.joinSettings(); err != nil {
		return err
	}
	if f.devCluster != 0 && (f.join != "" || f.token != "") {
		return errors.New("--dev-cluster has its own nodes; leave --join and --token out")
	}
	cfg, reports, err := a.load(f)
	if err == nil {
		if f, err = a.numberNode(ctx, f, cfg); err == nil {
			cfg, reports, err = a.load(f)
		}
	}
	if err != nil {
		if _, ok := errors.AsType[*config.UsageError](err); ok {
			return err
		}
		return &failure{err, exitFatal}
	}
	logger, level := newLogger(a.stderr, cfg, a.terminal)
	for _, r := range reports {
		logger.Warn("setting has no effect", slog.String("name", r.Name), slog.String("value", r.Value),
			slog.String("from", r.Origin.Where), slog.String("reason", r.Kind.String()))
	}
	if f.devCluster != 0 {
		one := *a
		one.newNode = a.devNode(f)
		a = &one
	}
	if err := a.runNode(ctx, cfg, logger, level, len(reports)); err != nil {
		return &failure{err, exitFatal}
	}
	return nil
}

// load gathers the settings.
func (a *app) load(f startFlags) (*config.Config, []config.Report, error) {
	env, err := config.FromFiles(a.env, a.readFile)
	if err != nil {
		return nil, nil, err
	}
	s := config.Sources{FileName: f.file, Env: env, Set: append(append([]string{}, f.override...), f.set...)}
	join, err := f.joinSettings()
	if err != nil {
		return nil, nil, err
	}
	s.Set = append(s.Set, join...)
	if f.logFormat != "" {
		s.Set = append(s.Set, "kaja.log.format="+f.logFormat)
	}
	if f.logLevel != "" {
		s.Set = append(s.Set, "kaja.log.level="+f.logLevel)
	}
	if f.file != "" {
		data, err := a.readFile(f.file)
		if err != nil {
			return nil, nil, fmt.Errorf("read the properties file: %w", err)
		}
		s.File = data
	}
	if mountinfo, err := a.readFile("/proc/self/mountinfo"); err == nil { // Linux alone has it
		s.Mounts = config.MountPoints(mountinfo)
	}
	if name, err := a.hostname(); err == nil {
		s.Hostname = name
	}
	return config.Load(s)
}

// runNode starts a node, waits for a signal or its end, and stops it.
func (a *app) runNode(ctx context.Context, cfg *config.Config, logger *slog.Logger, level *slog.LevelVar, ignored int) error {
	n, err := a.newNode(logger, level, cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &process{app: a, cfg: cfg, logger: logger, node: n}
	started := async(func() error { return n.Start(ctx) })
	err, told := p.await(started)
	if told { // to stop, before it had started: what Start says now does not matter
		cancel()
		if _, again := p.await(started); again {
			return errKilled
		}
		return p.close(nil)
	}
	if err != nil {
		return p.close(err)
	}
	a.announce(cfg, logger, n, ignored)
	err, told = p.await(async(n.Wait))
	if !told {
		logger.Error("the node has ended", slog.Any("err", err))
		return p.close(err)
	}
	return p.close(nil)
}

// process is a node under way and the signals that it gets.
type process struct {
	*app
	cfg    *config.Config
	logger *slog.Logger
	node   node
	told   bool // a first signal to stop has come
}

// errKilled is a stop by a second signal.
var errKilled = errors.New("stopped at once by a second signal; the next start recovers")

func async(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// await waits for done or for a signal to stop. A second one ends the process, unless a test stands in for that.
func (p *process) await(done <-chan error) (err error, told bool) {
	for {
		select {
		case err := <-done:
			return err, false
		case sig := <-p.signals:
			switch {
			case sig == syscall.SIGQUIT:
				p.dumpStacks(p.cfg, p.logger)
				continue
			case p.told:
				p.logger.Warn("stopping at once; the next start recovers", slog.String("signal", sig.String()))
				p.exit(exitFatal)
			default:
				p.logger.Info("stopping", slog.String("signal", sig.String()))
				p.told = true
			}
			return nil, true
		}
	}
}

// close stops the node cleanly; failed is why it has to, nil if it was told to.
func (p *process) close(failed error) error {
	closed := async(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		return p.node.Close(ctx)
	})
	p.told = p.told || failed != nil
	err, again := p.await(closed)
	if again {
		return errors.Join(failed, errKilled)
	}
	if err != nil {
		err = fmt.Errorf("stop: %w", err)
	}
	if failed == nil && err == nil {
		p.logger.Info("stopped")
	}
	return errors.Join(failed, err)
}

// announce says that clients are served: the start screen for people, and the lines that container tools wait for.
func (a *app) announce(cfg *config.Config, logger *slog.Logger, n node, ignored int) {
	v, _ := buildVersion()
	screen := n.Screen(v, time.Since(a.started), ignored)
	if cfg.String("kaja.log.format") != config.LogJSON {
		_, _ = fmt.Fprint(a.stdout, screen.String())
	}
	logger.Info(fmt.Sprintf("[BrokerLifecycleManager id=%d] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.", screen.NodeID)) //nolint:sloglint // the line that Kafka logs, with the id in it
	logger.Info(fmt.Sprintf("[KafkaRaftServer nodeId=%d] Kafka Server started", screen.NodeID))                                                     //nolint:sloglint // the line that Kafka logs, with the id in it
	logger.Info(fmt.Sprintf("[KafkaServer id=%d] started", screen.NodeID), slog.Duration("took", screen.Took))                                      //nolint:sloglint // the line that Kafka logs, with the id in it
}

// dumpStacks writes what every goroutine does, as JVMs do on SIGQUIT.
func (a *app) dumpStacks(cfg *config.Config, logger *slog.Logger) {
	text := stacks()
	if cfg.String("kaja.log.format") == config.LogJSON {
		logger.Info("goroutine stacks", slog.String("stacks", string(text)))
		return
	}
	logger.Info("goroutine stacks follow")
	if _, err := a.stderr.Write(text); err != nil {
		logger.Warn("goroutine stacks are incomplete", slog.Any("err", err))
	}
}
