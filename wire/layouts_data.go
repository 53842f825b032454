package wire

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests 0 to 18, field by field in wire order with Kafka's field names.

var layoutProduce = layout{
	min: 3, max: 13, flex: 9, size: unsafe.Sizeof(kmsg.ProduceRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // TransactionalId
		{kind: kInt16}, // Acks
		{kind: kInt32}, // TimeoutMs
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ProduceRequestTopic{}), fields: []field{ // TopicData
			{kind: kString, until: 13}, // Name
			{kind: kUUID, from: 13},    // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ProduceRequestTopicPartition{}), fields: []field{ // PartitionData
				{kind: kInt32},                 // Index
				{kind: kBytes, nullable: true}, // Records
			}},
		}},
	},
}

var layoutFetch = layout{
	min: 4, max: 18, flex: 12, size: unsafe.Sizeof(kmsg.FetchRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true, from: 12, tagged: true, tag: 0}, // ClusterId
		{kind: kInt32, until: 15}, // ReplicaId
		{kind: kStruct, size: unsafe.Sizeof(kmsg.FetchRequestReplicaState{}), from: 15, tagged: true, tag: 1, fields: []field{ // ReplicaState
			{kind: kInt32}, // ReplicaId
			{kind: kInt64}, // ReplicaEpoch
		}},
		{kind: kInt32},          // MaxWaitMs
		{kind: kInt32},          // MinBytes
		{kind: kInt32},          // MaxBytes
		{kind: kInt8},           // IsolationLevel
		{kind: kInt32, from: 7}, // SessionId
		{kind: kInt32, from: 7}, // SessionEpoch
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.FetchRequestTopic{}), fields: []field{ // Topics
			{kind: kString, until: 13}, // Topic
			{kind: kUUID, from: 13},    // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.FetchRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},                                 // Partition
				{kind: kInt32, from: 9},                        // CurrentLeaderEpoch
				{kind: kInt64},                                 // FetchOffset
				{kind: kInt32, from: 12},                       // LastFetchedEpoch
				{kind: kInt64, from: 5},                        // LogStartOffset
				{kind: kInt32},                                 // PartitionMaxBytes
				{kind: kUUID, from: 17, tagged: true, tag: 0},  // ReplicaDirectoryId
				{kind: kInt64, from: 18, tagged: true, tag: 1}, // HighWatermark
			}},
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.FetchRequestForgottenTopic{}), from: 7, fields: []field{ // ForgottenTopicsData
			{kind: kString, from: 7, until: 13}, // Topic
			{kind: kUUID, from: 13},             // TopicId
			{kind: kInt32, array: true},         // Partitions
		}},
		{kind: kString, from: 11}, // RackId
	},
}

var layoutListOffsets = layout{
	min: 1, max: 11, flex: 6, size: unsafe.Sizeof(kmsg.ListOffsetsRequest{}),
	fields: []field{
		{kind: kInt32},         // ReplicaId
		{kind: kInt8, from: 2}, // IsolationLevel
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ListOffsetsRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Name
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ListOffsetsRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},          // PartitionIndex
				{kind: kInt32, from: 4}, // CurrentLeaderEpoch
				{kind: kInt64},          // Timestamp
			}},
		}},
		{kind: kInt32, from: 10}, // TimeoutMs
	},
}

var layoutMetadata = layout{
	min: 0, max: 13, flex: 9, size: unsafe.Sizeof(kmsg.MetadataRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.MetadataRequestTopic{}), nullable: true, nullFrom: 1, fields: []field{ // Topics
			{kind: kUUID, from: 10}, // TopicId
			{kind: kString, boxed: true, nullable: true, nullFrom: 10}, // Name
		}},
		{kind: kInt8, from: 4},            // AllowAutoTopicCreation
		{kind: kInt8, from: 8, until: 11}, // IncludeClusterAuthorizedOperations
		{kind: kInt8, from: 8},            // IncludeTopicAuthorizedOperations
	},
}

var layoutOffsetCommit = layout{
	min: 2, max: 10, flex: 8, size: unsafe.Sizeof(kmsg.OffsetCommitRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kInt32},  // GenerationIdOrMemberEpoch
		{kind: kString}, // MemberId
		{kind: kString, boxed: true, nullable: true, from: 7}, // GroupInstanceId
		{kind: kInt64, until: 5},                              // RetentionTimeMs
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetCommitRequestTopic{}), fields: []field{ // Topics
			{kind: kString, until: 10}, // Name
			{kind: kUUID, from: 10},    // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetCommitRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},          // PartitionIndex
				{kind: kInt64},          // CommittedOffset
				{kind: kInt32, from: 6}, // CommittedLeaderEpoch
				{kind: kString, boxed: true, nullable: true}, // CommittedMetadata
			}},
		}},
	},
}

var layoutOffsetFetch = layout{
	min: 1, max: 10, flex: 6, size: unsafe.Sizeof(kmsg.OffsetFetchRequest{}),
	fields: []field{
		{kind: kString, until: 8}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetFetchRequestTopic{}), nullable: true, nullFrom: 2, until: 8, fields: []field{ // Topics
			{kind: kString},             // Name
			{kind: kInt32, array: true}, // PartitionIndexes
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetFetchRequestGroup{}), from: 8, fields: []field{ // Groups
			{kind: kString}, // GroupId
			{kind: kString, boxed: true, nullable: true, from: 9}, // MemberId
			{kind: kInt32, from: 9},                               // MemberEpoch
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetFetchRequestGroupTopic{}), nullable: true, fields: []field{ // Topics
				{kind: kString, from: 8, until: 10}, // Name
				{kind: kUUID, from: 10},             // TopicId
				{kind: kInt32, array: true},         // PartitionIndexes
			}},
		}},
		{kind: kInt8, from: 7}, // RequireStable
	},
}

var layoutFindCoordinator = layout{
	min: 0, max: 6, flex: 3, size: unsafe.Sizeof(kmsg.FindCoordinatorRequest{}),
	fields: []field{
		{kind: kString, until: 4},             // Key
		{kind: kInt8, from: 1},                // KeyType
		{kind: kString, array: true, from: 4}, // CoordinatorKeys
	},
}

var layoutJoinGroup = layout{
	min: 0, max: 9, flex: 6, size: unsafe.Sizeof(kmsg.JoinGroupRequest{}),
	fields: []field{
		{kind: kString},         // GroupId
		{kind: kInt32},          // SessionTimeoutMs
		{kind: kInt32, from: 1}, // RebalanceTimeoutMs
		{kind: kString},         // MemberId
		{kind: kString, boxed: true, nullable: true, from: 5}, // GroupInstanceId
		{kind: kString}, // ProtocolType
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.JoinGroupRequestProtocol{}), fields: []field{ // Protocols
			{kind: kString}, // Name
			{kind: kBytes},  // Metadata
		}},
		{kind: kString, boxed: true, nullable: true, from: 8}, // Reason
	},
}

var layoutHeartbeat = layout{
	min: 0, max: 4, flex: 4, size: unsafe.Sizeof(kmsg.HeartbeatRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kInt32},  // GenerationId
		{kind: kString}, // MemberId
		{kind: kString, boxed: true, nullable: true, from: 3}, // GroupInstanceId
	},
}

var layoutLeaveGroup = layout{
	min: 0, max: 5, flex: 4, size: unsafe.Sizeof(kmsg.LeaveGroupRequest{}),
	fields: []field{
		{kind: kString},           // GroupId
		{kind: kString, until: 3}, // MemberId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.LeaveGroupRequestMember{}), from: 3, fields: []field{ // Members
			{kind: kString}, // MemberId
			{kind: kString, boxed: true, nullable: true},          // GroupInstanceId
			{kind: kString, boxed: true, nullable: true, from: 5}, // Reason
		}},
	},
}

var layoutSyncGroup = layout{
	min: 0, max: 5, flex: 4, size: unsafe.Sizeof(kmsg.SyncGroupRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kInt32},  // GenerationId
		{kind: kString}, // MemberId
		{kind: kString, boxed: true, nullable: true, from: 3}, // GroupInstanceId
		{kind: kString, boxed: true, nullable: true, from: 5}, // ProtocolType
		{kind: kString, boxed: true, nullable: true, from: 5}, // ProtocolName
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.SyncGroupRequestGroupAssignment{}), fields: []field{ // Assignments
			{kind: kString}, // MemberId
			{kind: kBytes},  // Assignment
		}},
	},
}

var layoutDescribeGroups = layout{
	min: 0, max: 6, flex: 5, size: unsafe.Sizeof(kmsg.DescribeGroupsRequest{}),
	fields: []field{
		{kind: kString, array: true}, // Groups
		{kind: kInt8, from: 3},       // IncludeAuthorizedOperations
	},
}

var layoutListGroups = layout{
	min: 0, max: 5, flex: 3, size: unsafe.Sizeof(kmsg.ListGroupsRequest{}),
	fields: []field{
		{kind: kString, array: true, from: 4}, // StatesFilter
		{kind: kString, array: true, from: 5}, // TypesFilter
	},
}

var layoutSaslHandshake = layout{
	min: 0, max: 1, flex: noVersion, size: unsafe.Sizeof(kmsg.SASLHandshakeRequest{}),
	fields: []field{
		{kind: kString}, // Mechanism
	},
}

var layoutApiVersions = layout{
	min: 0, max: 5, flex: 3, size: unsafe.Sizeof(kmsg.ApiVersionsRequest{}),
	fields: []field{
		{kind: kString, from: 3},                              // ClientSoftwareName
		{kind: kString, from: 3},                              // ClientSoftwareVersion
		{kind: kString, boxed: true, nullable: true, from: 5}, // ClusterId
		{kind: kInt32, from: 5},                               // NodeId
	},
}
