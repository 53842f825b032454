package wire

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests 83 to 94, field by field in wire order with Kafka's field names.

var layoutInitializeShareGroupState = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.InitializeShareGroupStateRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.InitializeShareGroupStateRequestTopic{}), fields: []field{ // Topics
			{kind: kUUID}, // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.InitializeShareGroupStateRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // Partition
				{kind: kInt32}, // StateEpoch
				{kind: kInt64}, // StartOffset
			}},
		}},
	},
}

var layoutReadShareGroupState = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.ReadShareGroupStateRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ReadShareGroupStateRequestTopic{}), fields: []field{ // Topics
			{kind: kUUID}, // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ReadShareGroupStateRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // Partition
				{kind: kInt32}, // LeaderEpoch
			}},
		}},
	},
}

var layoutWriteShareGroupState = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.WriteShareGroupStateRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.WriteShareGroupStateRequestTopic{}), fields: []field{ // Topics
			{kind: kUUID}, // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.WriteShareGroupStateRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},          // Partition
				{kind: kInt32},          // StateEpoch
				{kind: kInt32},          // LeaderEpoch
				{kind: kInt64},          // StartOffset
				{kind: kInt32, from: 1}, // DeliveryCompleteCount
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.WriteShareGroupStateRequestTopicPartitionStateBatch{}), fields: []field{ // StateBatches
					{kind: kInt64}, // FirstOffset
					{kind: kInt64}, // LastOffset
					{kind: kInt8},  // DeliveryState
					{kind: kInt16}, // DeliveryCount
				}},
			}},
		}},
	},
}

var layoutDeleteShareGroupState = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.DeleteShareGroupStateRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DeleteShareGroupStateRequestTopic{}), fields: []field{ // Topics
			{kind: kUUID}, // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DeleteShareGroupStateRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // Partition
			}},
		}},
	},
}

var layoutReadShareGroupStateSummary = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.ReadShareGroupStateSummaryRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ReadShareGroupStateSummaryRequestTopic{}), fields: []field{ // Topics
			{kind: kUUID}, // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ReadShareGroupStateSummaryRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // Partition
				{kind: kInt32}, // LeaderEpoch
			}},
		}},
	},
}

var layoutStreamsGroupHeartbeat = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.StreamsGroupHeartbeatRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kString}, // MemberId
		{kind: kInt32},  // MemberEpoch
		{kind: kInt32},  // EndpointInformationEpoch
		{kind: kString, boxed: true, nullable: true}, // InstanceId
		{kind: kString, boxed: true, nullable: true}, // RackId
		{kind: kInt32}, // RebalanceTimeoutMs
		{kind: kStruct, boxed: true, size: unsafe.Sizeof(kmsg.StreamsGroupHeartbeatRequestTopology{}), nullable: true, fields: []field{ // Topology
			{kind: kInt32}, // Epoch
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{}), fields: []field{ // Subtopologies
				{kind: kString},              // SubtopologyId
				{kind: kString, array: true}, // SourceTopics
				{kind: kString, array: true}, // SourceTopicRegex
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TopicInfo{}), fields: []field{ // StateChangelogTopics
					{kind: kString}, // Name
					{kind: kInt32},  // Partitions
					{kind: kInt16},  // ReplicationFactor
					{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TopicInfoConfig{}), fields: []field{ // TopicConfigs
						{kind: kString}, // Key
						{kind: kString}, // Value
					}},
				}},
				{kind: kString, array: true}, // RepartitionSinkTopics
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TopicInfo{}), fields: []field{ // RepartitionSourceTopics
					{kind: kString}, // Name
					{kind: kInt32},  // Partitions
					{kind: kInt16},  // ReplicationFactor
					{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TopicInfoConfig{}), fields: []field{ // TopicConfigs
						{kind: kString}, // Key
						{kind: kString}, // Value
					}},
				}},
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{}), fields: []field{ // CopartitionGroups
					{kind: kInt16, array: true}, // SourceTopics
					{kind: kInt16, array: true}, // SourceTopicRegex
					{kind: kInt16, array: true}, // RepartitionSourceTopics
				}},
			}},
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TaskIDs{}), nullable: true, fields: []field{ // ActiveTasks
			{kind: kString},             // SubtopologyId
			{kind: kInt32, array: true}, // Partitions
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TaskIDs{}), nullable: true, fields: []field{ // StandbyTasks
			{kind: kString},             // SubtopologyId
			{kind: kInt32, array: true}, // Partitions
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TaskIDs{}), nullable: true, fields: []field{ // WarmupTasks
			{kind: kString},             // SubtopologyId
			{kind: kInt32, array: true}, // Partitions
		}},
		{kind: kString, boxed: true, nullable: true}, // ProcessId
		{kind: kStruct, boxed: true, size: unsafe.Sizeof(kmsg.StreamsGroupHeartbeatRequestUserEndpoint{}), nullable: true, fields: []field{ // UserEndpoint
			{kind: kString}, // Host
			{kind: kInt16},  // Port
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.StreamsGroupHeartbeatRequestClientTag{}), nullable: true, fields: []field{ // ClientTags
			{kind: kString}, // Key
			{kind: kString}, // Value
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TaskOffset{}), nullable: true, fields: []field{ // TaskOffsets
			{kind: kString}, // SubtopologyId
			{kind: kInt32},  // Partition
			{kind: kInt64},  // Offset
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TaskOffset{}), nullable: true, fields: []field{ // TaskEndOffsets
			{kind: kString}, // SubtopologyId
			{kind: kInt32},  // Partition
			{kind: kInt64},  // Offset
		}},
		{kind: kInt8}, // ShutdownApplication
	},
}

var layoutStreamsGroupDescribe = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.StreamsGroupDescribeRequest{}),
	fields: []field{
		{kind: kString, array: true}, // GroupIds
		{kind: kInt8},                // IncludeAuthorizedOperations
		{kind: kInt8, from: 1},       // IncludeTopologyDescription
	},
}

var layoutDescribeShareGroupOffsets = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.DescribeShareGroupOffsetsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeShareGroupOffsetsRequestGroup{}), fields: []field{ // Groups
			{kind: kString}, // GroupId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeShareGroupOffsetsRequestGroupTopic{}), nullable: true, fields: []field{ // Topics
				{kind: kString},             // TopicName
				{kind: kInt32, array: true}, // Partitions
			}},
		}},
	},
}

var layoutAlterShareGroupOffsets = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.AlterShareGroupOffsetsRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterShareGroupOffsetsRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // TopicName
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterShareGroupOffsetsRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // PartitionIndex
				{kind: kInt64}, // StartOffset
			}},
		}},
	},
}

var layoutDeleteShareGroupOffsets = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.DeleteShareGroupOffsetsRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DeleteShareGroupOffsetsRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // TopicName
		}},
	},
}

var layoutStreamsGroupTopologyDescriptionUpdate = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.StreamsGroupTopologyDescriptionUpdateRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kString}, // MemberId
		{kind: kInt32},  // TopologyEpoch
		{kind: kStruct, size: unsafe.Sizeof(kmsg.TopologyDescription{}), fields: []field{ // TopologyDescription
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TopologyDescriptionSubtopology{}), fields: []field{ // Subtopologies
				{kind: kString}, // SubtopologyId
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TopologyDescriptionNode{}), fields: []field{ // Nodes
					{kind: kString},                              // Name
					{kind: kInt8},                                // NodeType
					{kind: kString, array: true},                 // SourceTopics
					{kind: kString, boxed: true, nullable: true}, // SinkTopic
					{kind: kString, array: true},                 // Stores
					{kind: kString, array: true},                 // Successors
				}},
			}},
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TopologyDescriptionGlobalStore{}), fields: []field{ // GlobalStores
				{kind: kStruct, size: unsafe.Sizeof(kmsg.TopologyDescriptionNode{}), fields: []field{ // Source
					{kind: kString},                              // Name
					{kind: kInt8},                                // NodeType
					{kind: kString, array: true},                 // SourceTopics
					{kind: kString, boxed: true, nullable: true}, // SinkTopic
					{kind: kString, array: true},                 // Stores
					{kind: kString, array: true},                 // Successors
				}},
				{kind: kStruct, size: unsafe.Sizeof(kmsg.TopologyDescriptionNode{}), fields: []field{ // Processor
					{kind: kString},                              // Name
					{kind: kInt8},                                // NodeType
					{kind: kString, array: true},                 // SourceTopics
					{kind: kString, boxed: true, nullable: true}, // SinkTopic
					{kind: kString, array: true},                 // Stores
					{kind: kString, array: true},                 // Successors
				}},
			}},
		}},
	},
}

var layoutUnregisterController = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.UnregisterControllerRequest{}),
	fields: []field{
		{kind: kInt32}, // ControllerId
	},
}
