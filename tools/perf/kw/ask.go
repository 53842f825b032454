package kw

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Code is an error code of an answer.
type Code int16

// TimedOut is REQUEST_TIMED_OUT: what was asked for may have been carried out.
const TimedOut Code = 7

func (c Code) Error() string { return fmt.Sprint("error code ", int16(c)) }

// MetadataAll is the metadata of all topics (v12).
func (c *Conn) MetadataAll(to time.Duration) (*kmsg.MetadataResponse, error) {
	r := kmsg.NewPtrMetadataRequest()
	r.SetVersion(12)
	resp, err := c.Do(r, to)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.MetadataResponse), nil
}

// Quorum is the partition of DescribeQuorum's answer: the node that leads the metadata, and who votes.
func (c *Conn) Quorum(to time.Duration) (*kmsg.DescribeQuorumResponseTopicPartition, error) {
	r := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
	r.Topics = append(r.Topics, t)
	resp, err := c.Do(r, to)
	if err != nil {
		return nil, err
	}
	q := resp.(*kmsg.DescribeQuorumResponse)
	if q.ErrorCode != 0 {
		return nil, fmt.Errorf("describe quorum: %w", Code(q.ErrorCode))
	}
	if len(q.Topics) != 1 || len(q.Topics[0].Partitions) != 1 || q.Topics[0].Partitions[0].LeaderID < 0 {
		return nil, errors.New("describe quorum: no leader")
	}
	return &q.Topics[0].Partitions[0], nil
}

// Produce sends one batch to each of the given partitions of a topic; all must take it.
func (c *Conn) Produce(topic string, parts []int32, batch []byte, acks int16, to time.Duration) error {
	r := kmsg.NewPtrProduceRequest()
	r.SetVersion(9)
	r.Acks, r.TimeoutMillis = acks, int32(to.Milliseconds())
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	for _, p := range parts {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p, batch
		t.Partitions = append(t.Partitions, rp)
	}
	r.Topics = append(r.Topics, t)
	resp, err := c.Do(r, 2*to)
	if err != nil {
		return err
	}
	for _, rt := range resp.(*kmsg.ProduceResponse).Topics {
		for _, rp := range rt.Partitions {
			if rp.ErrorCode != 0 {
				return fmt.Errorf("%s-%d: %w", topic, rp.Partition, Code(rp.ErrorCode))
			}
		}
	}
	return nil
}

// SetTopicConfig sets one config of a topic and leaves the others as they are.
func (c *Conn) SetTopicConfig(topic, name, value string, to time.Duration) error {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r.SetVersion(1)
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	e := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	e.Name, e.Op, e.Value = name, kmsg.IncrementalAlterConfigOpSet, &value
	res.Configs = append(res.Configs, e)
	r.Resources = append(r.Resources, res)
	resp, err := c.Do(r, to)
	if err != nil {
		return err
	}
	for _, res := range resp.(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if res.ErrorCode != 0 {
			return fmt.Errorf("alter %s of %s: %w", name, topic, Code(res.ErrorCode))
		}
	}
	return nil
}

// TopicConfig is the value of one config of a topic, as the node that is asked knows it.
func (c *Conn) TopicConfig(topic, name string, to time.Duration) (string, error) {
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.SetVersion(4)
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, []string{name}
	r.Resources = append(r.Resources, res)
	resp, err := c.Do(r, to)
	if err != nil {
		return "", err
	}
	for _, res := range resp.(*kmsg.DescribeConfigsResponse).Resources {
		if res.ErrorCode != 0 {
			return "", fmt.Errorf("describe %s of %s: %w", name, topic, Code(res.ErrorCode))
		}
		for _, e := range res.Configs {
			if e.Name == name && e.Value != nil {
				return *e.Value, nil
			}
		}
	}
	return "", fmt.Errorf("describe %s of %s: not in the answer", name, topic)
}
