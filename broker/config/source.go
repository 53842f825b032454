package config

// Source is where a described value comes from, numbered as DescribeConfigs answers it.
type Source int8

// The sources of topic and broker settings.
const (
	SourceTopic         Source = 1 // the topic's own config
	SourceBroker        Source = 2 // altered for this broker
	SourceDefaultBroker Source = 3 // altered for all brokers
	SourceStatic        Source = 4 // given at start
	SourceDefault       Source = 5 // built in
)
