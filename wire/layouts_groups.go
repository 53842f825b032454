package wire

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests 68 to 82, field by field in wire order with Kafka's field names.

var layoutConsumerGroupHeartbeat = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.ConsumerGroupHeartbeatRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kString}, // MemberId
		{kind: kInt32},  // MemberEpoch
		{kind: kString, boxed: true, nullable: true}, // InstanceId
		{kind: kString, boxed: true, nullable: true}, // RackId
		{kind: kInt32}, // RebalanceTimeoutMs
		{kind: kString, array: true, nullable: true},          // SubscribedTopicNames
		{kind: kString, boxed: true, nullable: true, from: 1}, // SubscribedTopicRegex
		{kind: kString, boxed: true, nullable: true},          // ServerAssignor
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ConsumerGroupHeartbeatRequestTopic{}), nullable: true, fields: []field{ // TopicPartitions
			{kind: kUUID},               // TopicId
			{kind: kInt32, array: true}, // Partitions
		}},
	},
}

var layoutConsumerGroupDescribe = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.ConsumerGroupDescribeRequest{}),
	fields: []field{
		{kind: kString, array: true}, // GroupIds
		{kind: kInt8},                // IncludeAuthorizedOperations
	},
}

var layoutControllerRegistration = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.ControllerRegistrationRequest{}),
	fields: []field{
		{kind: kInt32}, // ControllerId
		{kind: kUUID},  // IncarnationId
		{kind: kInt8},  // ZkMigrationReady
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ControllerRegistrationRequestListener{}), fields: []field{ // Listeners
			{kind: kString}, // Name
			{kind: kString}, // Host
			{kind: kInt16},  // Port
			{kind: kInt16},  // SecurityProtocol
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ControllerRegistrationRequestFeature{}), fields: []field{ // Features
			{kind: kString}, // Name
			{kind: kInt16},  // MinSupportedVersion
			{kind: kInt16},  // MaxSupportedVersion
		}},
	},
}

var layoutGetTelemetrySubscriptions = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.GetTelemetrySubscriptionsRequest{}),
	fields: []field{
		{kind: kUUID}, // ClientInstanceId
	},
}

var layoutPushTelemetry = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.PushTelemetryRequest{}),
	fields: []field{
		{kind: kUUID},  // ClientInstanceId
		{kind: kInt32}, // SubscriptionId
		{kind: kInt8},  // Terminating
		{kind: kInt8},  // CompressionType
		{kind: kBytes}, // Metrics
	},
}

var layoutAssignReplicasToDirs = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.AssignReplicasToDirsRequest{}),
	fields: []field{
		{kind: kInt32}, // BrokerId
		{kind: kInt64}, // BrokerEpoch
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AssignReplicasToDirsRequestDirectory{}), fields: []field{ // Directories
			{kind: kUUID}, // Id
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AssignReplicasToDirsRequestDirectoryTopic{}), fields: []field{ // Topics
				{kind: kUUID}, // TopicId
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{}), fields: []field{ // Partitions
					{kind: kInt32}, // PartitionIndex
				}},
			}},
		}},
	},
}

var layoutListConfigResources = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.ListConfigResourcesRequest{}),
	fields: []field{
		{kind: kInt8, array: true, from: 1}, // ResourceTypes
	},
}

var layoutDescribeTopicPartitions = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.DescribeTopicPartitionsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeTopicPartitionsRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Name
		}},
		{kind: kInt32}, // ResponsePartitionLimit
		{kind: kStruct, boxed: true, size: unsafe.Sizeof(kmsg.DescribeTopicPartitionsRequestCursor{}), nullable: true, fields: []field{ // Cursor
			{kind: kString}, // TopicName
			{kind: kInt32},  // PartitionIndex
		}},
	},
}

var layoutShareGroupHeartbeat = layout{
	min: 1, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.ShareGroupHeartbeatRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kString}, // MemberId
		{kind: kInt32},  // MemberEpoch
		{kind: kString, boxed: true, nullable: true}, // RackId
		{kind: kString, array: true, nullable: true}, // SubscribedTopicNames
	},
}

var layoutShareGroupDescribe = layout{
	min: 1, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.ShareGroupDescribeRequest{}),
	fields: []field{
		{kind: kString, array: true}, // GroupIds
		{kind: kInt8},                // IncludeAuthorizedOperations
	},
}

var layoutShareFetch = layout{
	min: 1, max: 2, flex: 0, size: unsafe.Sizeof(kmsg.ShareFetchRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // GroupId
		{kind: kString, boxed: true, nullable: true}, // MemberId
		{kind: kInt32},         // ShareSessionEpoch
		{kind: kInt32},         // MaxWaitMs
		{kind: kInt32},         // MinBytes
		{kind: kInt32},         // MaxBytes
		{kind: kInt32},         // MaxRecords
		{kind: kInt32},         // BatchSize
		{kind: kInt8, from: 2}, // ShareAcquireMode
		{kind: kInt8, from: 2}, // IsRenewAck
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ShareFetchRequestTopic{}), fields: []field{ // Topics
			{kind: kUUID}, // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ShareFetchRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // PartitionIndex
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{}), fields: []field{ // AcknowledgementBatches
					{kind: kInt64},             // FirstOffset
					{kind: kInt64},             // LastOffset
					{kind: kInt8, array: true}, // AcknowledgeTypes
				}},
			}},
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ShareFetchRequestForgottenTopicsData{}), fields: []field{ // ForgottenTopicsData
			{kind: kUUID},               // TopicId
			{kind: kInt32, array: true}, // Partitions
		}},
	},
}

var layoutShareAcknowledge = layout{
	min: 1, max: 2, flex: 0, size: unsafe.Sizeof(kmsg.ShareAcknowledgeRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // GroupId
		{kind: kString, boxed: true, nullable: true}, // MemberId
		{kind: kInt32},         // ShareSessionEpoch
		{kind: kInt8, from: 2}, // IsRenewAck
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ShareAcknowledgeRequestTopic{}), fields: []field{ // Topics
			{kind: kUUID}, // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ShareAcknowledgeRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // PartitionIndex
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{}), fields: []field{ // AcknowledgementBatches
					{kind: kInt64},             // FirstOffset
					{kind: kInt64},             // LastOffset
					{kind: kInt8, array: true}, // AcknowledgeTypes
				}},
			}},
		}},
	},
}

var layoutAddRaftVoter = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.AddRaftVoterRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // ClusterId
		{kind: kInt32}, // TimeoutMs
		{kind: kInt32}, // VoterId
		{kind: kUUID},  // VoterDirectoryId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AddRaftVoterRequestListener{}), fields: []field{ // Listeners
			{kind: kString}, // Name
			{kind: kString}, // Host
			{kind: kInt16},  // Port
		}},
		{kind: kInt8, from: 1}, // AckWhenCommitted
	},
}

var layoutRemoveRaftVoter = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.RemoveRaftVoterRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // ClusterId
		{kind: kInt32}, // VoterId
		{kind: kUUID},  // VoterDirectoryId
	},
}

var layoutUpdateRaftVoter = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.UpdateRaftVoterRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // ClusterId
		{kind: kInt32}, // CurrentLeaderEpoch
		{kind: kInt32}, // VoterId
		{kind: kUUID},  // VoterDirectoryId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.UpdateRaftVoterRequestListener{}), fields: []field{ // Listeners
			{kind: kString}, // Name
			{kind: kString}, // Host
			{kind: kInt16},  // Port
		}},
		{kind: kStruct, size: unsafe.Sizeof(kmsg.UpdateRaftVoterRequestKRaftVersionFeature{}), fields: []field{ // KRaftVersionFeature
			{kind: kInt16}, // MinSupportedVersion
			{kind: kInt16}, // MaxSupportedVersion
		}},
	},
}
