package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askTimeout bounds one question to one address.
const askTimeout = 5 * time.Second

// answered is what the first bootstrap server that answers tells a client.
type answered struct {
	server     string
	remote     bool // not on this machine
	cluster    string
	brokers    []kadm.BrokerDetail
	partitions int

	underReplicated, offline int
}

// at runs ask with a client that knows only one address.
func at(ctx context.Context, addr string, ask func(ctx context.Context, client *kgo.Client, there *kgo.Broker) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID("kaja-doctor"), kgo.RequestRetries(0), kgo.RetryTimeout(askTimeout))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return ask(ctx, client, client.SeedBrokers()[0])
}

// bootstrap asks a bootstrap server what it tells clients; nil if it does not answer.
func (c *doctorCommand) bootstrap(ctx context.Context, server string) *answered {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		c.found(levelFail, "Give host:port.", "bootstrap server %s: %v", server, err)
		return nil
	}
	what := "bootstrap server " + server
	ips := c.resolve(ctx, what, host, "Correct the name, or add it to DNS or /etc/hosts.")
	if ips == nil || !c.connect(ctx, what, port, `Is a broker running there, and is the port open? "kaja start" starts one here.`, ips) {
		return nil
	}
	t := &answered{server: server, remote: !loopback(ips) && !local(ips)}
	began := time.Now()
	err = at(ctx, server, func(ctx context.Context, client *kgo.Client, there *kgo.Broker) error {
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "kaja-doctor", "1"
		resp, err := there.Request(ctx, req)
		if err != nil {
			return err
		}
		c.found(levelOK, "", "%s: answers in %s, %s", what, time.Since(began).Round(100*time.Microsecond), spoken(resp.(*kmsg.ApiVersionsResponse)))
		meta, err := metadataOf(ctx, there)
		if err != nil {
			return fmt.Errorf("ask for the metadata: %w", err)
		}
		t.fill(meta)
		return nil
	})
	if err != nil {
		c.found(levelFail, notKafka(err), "%s: %v", what, plain(err))
		return nil
	}
	c.found(levelOK, "", "it is cluster %s and tells clients of %s: %s", t.cluster, count(len(t.brokers), "broker"), t.addresses())
	return t
}

// spoken says how much of Kafka's protocol an answer to ApiVersions offers.
func spoken(r *kmsg.ApiVersionsResponse) string {
	text := count(len(r.ApiKeys), "API")
	for _, k := range r.ApiKeys {
		if key := kmsg.Key(k.ApiKey); key == kmsg.Produce || key == kmsg.Fetch {
			text += fmt.Sprintf(", %s up to version %d", key.Name(), k.MaxVersion)
		}
	}
	return text
}

// notKafka is what to do when an address takes connections and does not answer.
func notKafka(err error) string {
	if closedOnFirst(err) || errors.Is(err, context.DeadlineExceeded) {
		return "It takes connections and does not answer Kafka's first request: a listener with TLS or SASL, or not Kafka at all?"
	}
	return ""
}

func closedOnFirst(err error) bool {
	_, first := errors.AsType[*kgo.ErrFirstReadEOF](err)
	return first || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
}

// plain is an error without the client's own hints, which are about its API.
func plain(err error) string {
	if closedOnFirst(err) {
		return "the connection was closed on the first request"
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within " + askTimeout.String()
	}
	return err.Error()
}

func metadataOf(ctx context.Context, there *kgo.Broker) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil // all of them
	resp, err := there.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.MetadataResponse), nil
}

func (t *answered) fill(m *kmsg.MetadataResponse) {
	if m.ClusterID != nil {
		t.cluster = *m.ClusterID
	}
	for _, b := range m.Brokers {
		t.brokers = append(t.brokers, kadm.BrokerDetail{NodeID: b.NodeID, Host: b.Host, Port: b.Port})
	}
	for _, topic := range m.Topics {
		for _, p := range topic.Partitions {
			t.partitions++
			if p.Leader < 0 {
				t.offline++
			} else if len(p.ISR) < len(p.Replicas) {
				t.underReplicated++
			}
		}
	}
}

func (t *answered) addresses() string {
	text := ""
	for i, b := range t.brokers {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d at %s", b.NodeID, address(b))
	}
	return textOrDash(text)
}

func address(b kadm.BrokerDetail) string {
	return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
}

// broker goes to the address that clients are told for a broker.
func (c *doctorCommand) broker(ctx context.Context, t *answered, b kadm.BrokerDetail) {
	what := fmt.Sprintf("broker %d at %s", b.NodeID, address(b))
	todo := fmt.Sprintf("Clients are sent there. Set advertised.listeners of broker %d to an address that clients can reach.", b.NodeID)
	ips := c.resolve(ctx, what, b.Host, todo)
	if ips == nil {
		return
	}
	if t.remote && loopback(ips) {
		c.found(levelFail, todo, "%s: that is this machine, but %s is not: clients here would talk to themselves", what, t.server)
		return
	}
	if !c.connect(ctx, what, strconv.Itoa(int(b.Port)), todo, ips) {
		return
	}
	began := time.Now()
	if wrong := c.whoIs(ctx, t, b); wrong != "" {
		c.found(levelFail, todo, "%s: %s", what, wrong)
		return
	}
	c.found(levelOK, "", "%s: reached in %s", what, time.Since(began).Round(100*time.Microsecond))
}

// whoIs says what is wrong with who answers at a broker's address; "" if it is that broker.
func (c *doctorCommand) whoIs(ctx context.Context, t *answered, b kadm.BrokerDetail) string {
	wrong := ""
	err := at(ctx, address(b), func(ctx context.Context, _ *kgo.Client, there *kgo.Broker) error {
		meta, err := metadataOf(ctx, there)
		if err != nil {
			return err
		}
		if meta.ClusterID == nil || *meta.ClusterID != t.cluster {
			wrong = "another cluster answers there"
			return nil
		}
		// A broker describes the configs of no other.
		req := kmsg.NewPtrDescribeConfigsRequest()
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(b.NodeID)), []string{"node.id"}
		req.Resources = append(req.Resources, res)
		resp, err := there.Request(ctx, req)
		if err != nil {
			return err
		}
		for _, r := range resp.(*kmsg.DescribeConfigsResponse).Resources {
			if errors.Is(kerr.ErrorForCode(r.ErrorCode), kerr.InvalidRequest) {
				wrong = "another broker of the cluster answers there"
			}
		}
		return nil
	})
	if err != nil {
		return plain(err)
	}
	return wrong
}
