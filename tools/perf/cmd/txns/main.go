// Command txns measures transactions: each producer, with a transactional id of its own, writes one record to each of
// some partitions and commits, over and over. It prints transactions a second and how long the commits took, for each
// address in turn, so that two brokers are compared in one run. A request that is answered with an error to be retried
// is sent again after clientBackoff, as Kafka's own client does while its last transaction is being completed; the
// defaults of the client library, 250 ms and more, and metadata first, would be most of what is measured.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// clientBackoff is the pause of Kafka's producer before it asks again while its last transaction is being completed.
const clientBackoff = 20 * time.Millisecond

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "addresses of the brokers to compare, separated by commas")
	producers := flag.String("producers", "1,10,100", "numbers of producers")
	partitions := flag.Int("partitions", 10, "partitions in each transaction")
	seconds := flag.Float64("seconds", 5, "length of each measurement")
	interval := flag.Duration("fraction", 0, "instead: compare a producer that commits in this interval with one without transactions")
	rounds := flag.Int("rounds", 3, "how often each measurement is made; medians are printed, too")
	flag.Parse()
	if *interval > 0 {
		for addr := range strings.SplitSeq(*brokers, ",") {
			if err := fraction(addr, *partitions, time.Duration(*seconds*float64(time.Second)), *interval, *rounds); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", addr, err)
				os.Exit(1)
			}
		}
		return
	}
	length := time.Duration(*seconds * float64(time.Second))
	for n := range strings.SplitSeq(*producers, ",") {
		count, err := strconv.Atoi(n)
		if err != nil {
			fmt.Fprintln(os.Stderr, "producers:", err)
			os.Exit(2)
		}
		if err := compare(strings.Split(*brokers, ","), count, *partitions, length, *rounds); err != nil {
			fmt.Fprintf(os.Stderr, "%d producers: %v\n", count, err)
			os.Exit(1)
		}
	}
}

// figures are those of one measurement.
type figures struct {
	perSecond     float64
	p50, p99, max time.Duration
}

func (f figures) String() string {
	return fmt.Sprintf("transactions/s=%.0f commit p50=%v p99=%v max=%v", f.perSecond, f.p50, f.p99, f.max)
}

// compare measures the brokers in turn, rounds times, and prints each measurement and the medians of each broker.
func compare(addrs []string, producers, partitions int, length time.Duration, rounds int) error {
	all := make([][]figures, len(addrs))
	for round := range rounds {
		for i := range addrs {
			at := (i + round) % len(addrs) // nobody is always the first
			took, err := measure(addrs[at], producers, partitions, length)
			if err != nil {
				return fmt.Errorf("%s: %w", addrs[at], err)
			}
			f := figures{float64(len(took)) / length.Seconds(), quantile(took, 0.5), quantile(took, 0.99), quantile(took, 1)}
			all[at] = append(all[at], f)
			fmt.Printf("%s producers=%d partitions=%d %v\n", addrs[at], producers, partitions, f)
		}
	}
	for i, addr := range addrs {
		fmt.Printf("%s producers=%d partitions=%d medians of %d: %v\n", addr, producers, partitions, rounds, figures{
			median(all[i], func(f figures) float64 { return f.perSecond }), median(all[i], func(f figures) time.Duration { return f.p50 }),
			median(all[i], func(f figures) time.Duration { return f.p99 }), median(all[i], func(f figures) time.Duration { return f.max }),
		})
	}
	return nil
}

// median is the middle of one figure of several measurements, the upper one of two.
func median[T cmp.Ordered](all []figures, of func(figures) T) T {
	values := make([]T, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// quantile is one of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Round(10 * time.Microsecond)
}

// measure gives how long each commit took, sorted.
func measure(addr string, producers, partitions int, length time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), length+2*time.Minute)
	defer cancel()
	topic := fmt.Sprintf("perf-txns-%d-%d", producers, time.Now().UnixNano())
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := createTopic(ctx, client, topic, partitions); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	var wg, ready sync.WaitGroup
	ready.Add(producers)
	start := make(chan struct{})
	var end time.Time // set before start is closed
	for i := range producers {
		wg.Go(func() {
			took, err := produce(ctx, addr, topic, fmt.Sprintf("%s-%d", topic, i), partitions, &ready, start, &end)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took...)
			failed = errors.Join(failed, err)
		})
	}
	ready.Wait()
	end = time.Now().Add(length)
	close(start)
	wg.Wait()
	slices.Sort(all)
	return all, failed
}

func createTopic(ctx context.Context, client *kgo.Client, topic string, partitions int) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: topic, NumPartitions: int32(partitions), ReplicationFactor: 1}}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// produce is one producer: a first transaction that is not counted, then as many as there is time for.
func produce(ctx context.Context, addr, topic, id string, partitions int, ready *sync.WaitGroup, start <-chan struct{}, end *time.Time) ([]time.Duration, error) {
	warm := sync.OnceFunc(ready.Done)
	defer warm()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RetryBackoffFn(func(int) time.Duration { return clientBackoff }), kgo.MetadataMinAge(clientBackoff))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var took []time.Duration
	for first := true; first || time.Now().Before(*end); first = false {
		if err := client.BeginTransaction(); err != nil {
			return took, err
		}
		for p := range int32(partitions) {
			client.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: []byte("a record of a transaction")}, nil)
		}
		if err := client.Flush(ctx); err != nil {
			return took, err
		}
		began := time.Now()
		if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return took, err
		}
		if first {
			warm()
			<-start
		} else {
			took = append(took, time.Since(began))
		}
	}
	return took, nil
}
