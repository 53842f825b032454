package clients

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	kafka "github.com/segmentio/kafka-go"

	foreign "github.com/kajamq/kaja/compat-tests/internal/clients"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// B53: fifty producers of four makes meet a fresh name at the same time. They make one topic, and each message is there once.
func TestRaceForOneName(t *testing.T) {
	b := startBroker(t, map[string]string{"num.partitions": "3"})
	set := need(t, "kcat", "node")
	const goers, saramas, kcats, scripts = 14, 14, 12, 10
	var wg sync.WaitGroup
	run := func(prefix string, count int, send func(value string) error) (want []string) {
		for i := range count {
			value := prefix + strconv.Itoa(i)
			want = append(want, value)
			wg.Go(func() {
				if err := send(value); err != nil {
					t.Errorf("%s: %v", value, err)
				}
			})
		}
		return want
	}
	want := slices.Concat(
		run("kafka-go-", goers, func(value string) error { return sendKafkaGo(t, b, value) }),
		run("sarama-", saramas, func(value string) error { return sendSarama(b, value) }),
		run("kcat-", kcats, func(value string) error {
			cmd := exec.CommandContext(t.Context(), "kcat", "-b", b.Addr, "-P", "-t", "race")
			cmd.Stdin = strings.NewReader(value + "\n")
			out, err := cmd.CombinedOutput()
			return withOutput(err, out)
		}),
	)
	for i := range scripts {
		want = append(want, "kafkajs-"+strconv.Itoa(i))
	}
	wg.Go(func() {
		cmd := exec.CommandContext(t.Context(), "node", "../js/race.js", b.Addr, "race", "kafkajs-", strconv.Itoa(scripts))
		cmd.Env = append(os.Environ(), "NODE_PATH="+set.NodePath())
		out, err := cmd.CombinedOutput()
		if err := withOutput(err, out); err != nil {
			t.Error("kafkajs:", err)
		}
	})
	wg.Wait()
	out, err := exec.CommandContext(t.Context(), "kcat", "-b", b.Addr, "-C", "-t", "race", "-o", "beginning", "-e", "-q", "-f", "%s\n").CombinedOutput()
	if err != nil {
		t.Fatal(withOutput(err, out))
	}
	got := strings.Fields(string(out))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("read %d messages: %q\nwant %d, each once", len(got), got, len(want))
	}
	admin := &kafka.Client{Addr: kafka.TCP(b.Addr)}
	meta, err := admin.Metadata(t.Context(), &kafka.MetadataRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range meta.Topics {
		if topic.Name != "race" || len(topic.Partitions) != 3 {
			t.Errorf("topic %s with %d partitions, want race with 3 alone", topic.Name, len(topic.Partitions))
		}
	}
}

func sendKafkaGo(t *testing.T, b *target.Broker, value string) error {
	t.Helper()
	w := &kafka.Writer{
		Addr: kafka.TCP(b.Addr), Topic: "race", AllowAutoTopicCreation: true, BatchTimeout: 10 * time.Millisecond, MaxAttempts: 30,
		WriteBackoffMin: 50 * time.Millisecond, RequiredAcks: kafka.RequireAll,
	}
	var err error
	for range 20 { // the writer itself gives up at once on a topic that is not there yet
		if err = w.WriteMessages(t.Context(), kafka.Message{Value: []byte(value)}); !errors.Is(err, kafka.UnknownTopicOrPartition) && !errors.Is(err, kafka.LeaderNotAvailable) {
			break
		}
	}
	return errors.Join(err, w.Close())
}

func sendSarama(b *target.Broker, value string) error {
	config := sarama.NewConfig()
	config.Version, config.Producer.Return.Successes, config.Producer.RequiredAcks = sarama.V2_8_0_0, true, sarama.WaitForAll
	config.Metadata.Retry.Max, config.Producer.Retry.Max = 20, 20
	producer, err := sarama.NewSyncProducer([]string{b.Addr}, config)
	if err != nil {
		return err
	}
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "race", Value: sarama.StringEncoder(value)})
	return errors.Join(err, producer.Close())
}

func withOutput(err error, out []byte) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\n%.2000s", err, out)
}

// need skips the test when a foreign program is not there; in CI the test fails instead.
func need(t *testing.T, names ...string) foreign.Set {
	t.Helper()
	set, err := foreign.Default()
	for _, name := range names {
		err = errors.Join(err, set.Check(name))
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("a client that CI must have is not there (not a fault of the broker): %v", err)
	default:
		t.Skipf("client not there: %v", err)
	}
	return set
}
