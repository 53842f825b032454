package api

import (
	"slices"
	"testing"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The answers of a running Kafka 4.4.0 to controlCases; KAJA_TEST_KAFKA asks again.
const kafkaControlAnswers = "testdata/control_kafka_4.4.0.json"

func TestControllerAPIsAnswerAsKafka(t *testing.T) {
	answerAsKafka(t, numbered(slices.Concat(electCases(), featureCases(), unregisterCases(), quorumCases())), kafkaControlAnswers)
}

func electReq(version int16, kind int8, topics ...kmsg.ElectLeadersRequestTopic) kmsg.Request {
	r := kmsg.NewPtrElectLeadersRequest()
	r.Version, r.ElectionType, r.TimeoutMillis, r.Topics = version, kind, 5000, topics
	return r
}

func electTopic(name string, parts ...int32) kmsg.ElectLeadersRequestTopic {
	return kmsg.ElectLeadersRequestTopic{Topic: name, Partitions: parts}
}

func electCases() []metaCase {
	cases := []metaCase{{"create", createReq(false, topicReq("meta.a", 2, 1), topicReq("meta-m", 1, 1))}}
	for v := range int16(3) {
		cases = append(cases,
			metaCase{"preferred", electReq(v, 0, electTopic("meta.a", 0, 1))},
			metaCase{"unclean", electReq(v, 1, electTopic("meta.a", 0))},
			metaCase{"unknown kind", electReq(v, 7, electTopic("meta.a", 0))},
			metaCase{"unknown", electReq(v, 0, electTopic("meta-none", 0), electTopic("meta.a", 9, -1))},
			metaCase{"twice", electReq(v, 0, electTopic("meta.a", 0, 0))},
			metaCase{"none", electReq(v, 0, []kmsg.ElectLeadersRequestTopic{}...)},
			metaCase{"no partition", electReq(v, 0, electTopic("meta.a"))},
		)
	}
	return cases
}

func featureReq(version int16, validate bool, updates ...kmsg.UpdateFeaturesRequestFeatureUpdate) kmsg.Request {
	r := kmsg.NewPtrUpdateFeaturesRequest()
	r.Version, r.ValidateOnly, r.TimeoutMillis, r.FeatureUpdates = version, validate, 5000, updates
	return r
}

func level(name string, level int16, kind int8) kmsg.UpdateFeaturesRequestFeatureUpdate {
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = name, level, kind, kind != 1
	return u
}

func featureCases() []metaCase {
	const txn = image.FeatureTransactionVersion
	var cases []metaCase
	for v := range int16(3) {
		validate := v > 0
		cases = append(cases,
			metaCase{"same", featureReq(v, validate, level(txn, 2, 1))},
			metaCase{"down without a word", featureReq(v, validate, level(txn, 1, 1))},
			metaCase{"too high", featureReq(v, validate, level(txn, 9, 1))},
			metaCase{"negative", featureReq(v, validate, level(txn, -1, 1))},
			metaCase{"unknown feature", featureReq(v, validate, level("nonsense", 1, 1))},
			metaCase{"unknown feature off", featureReq(v, true, level("nonsense", 0, 2))},
			metaCase{"one of two fails", featureReq(v, validate, level(txn, 2, 1), level("nonsense", 1, 1))},
			metaCase{"none", featureReq(v, validate, []kmsg.UpdateFeaturesRequestFeatureUpdate{}...)},
			metaCase{"twice", featureReq(v, validate, level(txn, 2, 1), level(txn, 2, 1))},
		)
		if v > 0 {
			cases = append(cases,
				metaCase{"down", featureReq(v, true, level(txn, 1, 2))},
				metaCase{"down for sure", featureReq(v, true, level(txn, 0, 3))},
				metaCase{"up as a downgrade", featureReq(v, true, level(txn, 2, 2))},
				metaCase{"unknown kind", featureReq(v, true, level(txn, 1, 9))},
				metaCase{"kind 0", featureReq(v, true, level(txn, 1, 0))},
			)
		}
	}
	return cases
}

func unregisterCases() []metaCase {
	var cases []metaCase
	for _, id := range []int32{99, -1} {
		r := kmsg.NewPtrUnregisterBrokerRequest()
		r.BrokerID = id
		cases = append(cases, metaCase{"unregister", r})
	}
	return cases
}

func quorumCases() []metaCase {
	topic := func(name string, parts ...int32) kmsg.DescribeQuorumRequestTopic {
		t := kmsg.DescribeQuorumRequestTopic{Topic: name}
		for _, p := range parts {
			t.Partitions = append(t.Partitions, kmsg.DescribeQuorumRequestTopicPartition{Partition: p})
		}
		return t
	}
	var cases []metaCase
	for v := range int16(3) {
		for _, topics := range [][]kmsg.DescribeQuorumRequestTopic{
			{topic("meta.a", 0)}, {topic("__cluster_metadata", 1)}, {topic("__cluster_metadata", 0, 1)}, {topic("__cluster_metadata", 0), topic("meta.a", 0)}, {}, {topic("__cluster_metadata")},
		} {
			r := kmsg.NewPtrDescribeQuorumRequest()
			r.Version, r.Topics = v, topics
			cases = append(cases, metaCase{"not the metadata", r})
		}
	}
	return cases
}
