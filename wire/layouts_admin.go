package wire

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests 19 to 43, field by field in wire order with Kafka's field names.

var layoutCreateTopics = layout{
	min: 2, max: 7, flex: 5, size: unsafe.Sizeof(kmsg.CreateTopicsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.CreateTopicsRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Name
			{kind: kInt32},  // NumPartitions
			{kind: kInt16},  // ReplicationFactor
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.CreateTopicsRequestTopicReplicaAssignment{}), fields: []field{ // Assignments
				{kind: kInt32},              // PartitionIndex
				{kind: kInt32, array: true}, // BrokerIds
			}},
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.CreateTopicsRequestTopicConfig{}), fields: []field{ // Configs
				{kind: kString}, // Name
				{kind: kString, boxed: true, nullable: true}, // Value
			}},
		}},
		{kind: kInt32}, // timeoutMs
		{kind: kInt8},  // validateOnly
	},
}

var layoutDeleteTopics = layout{
	min: 1, max: 6, flex: 4, size: unsafe.Sizeof(kmsg.DeleteTopicsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DeleteTopicsRequestTopic{}), from: 6, fields: []field{ // Topics
			{kind: kString, boxed: true, nullable: true}, // Name
			{kind: kUUID}, // TopicId
		}},
		{kind: kString, array: true, until: 6}, // TopicNames
		{kind: kInt32},                         // TimeoutMs
	},
}

var layoutDeleteRecords = layout{
	min: 0, max: 2, flex: 2, size: unsafe.Sizeof(kmsg.DeleteRecordsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DeleteRecordsRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Name
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DeleteRecordsRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // PartitionIndex
				{kind: kInt64}, // Offset
			}},
		}},
		{kind: kInt32}, // TimeoutMs
	},
}

var layoutInitProducerId = layout{
	min: 0, max: 5, flex: 2, size: unsafe.Sizeof(kmsg.InitProducerIDRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // TransactionalId
		{kind: kInt32},          // TransactionTimeoutMs
		{kind: kInt64, from: 3}, // ProducerId
		{kind: kInt16, from: 3}, // ProducerEpoch
	},
}

var layoutOffsetForLeaderEpoch = layout{
	min: 2, max: 4, flex: 4, size: unsafe.Sizeof(kmsg.OffsetForLeaderEpochRequest{}),
	fields: []field{
		{kind: kInt32, from: 3}, // ReplicaId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetForLeaderEpochRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Topic
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetForLeaderEpochRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // Partition
				{kind: kInt32}, // CurrentLeaderEpoch
				{kind: kInt32}, // LeaderEpoch
			}},
		}},
	},
}

var layoutAddPartitionsToTxn = layout{
	min: 0, max: 5, flex: 3, size: unsafe.Sizeof(kmsg.AddPartitionsToTxnRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AddPartitionsToTxnRequestTransaction{}), from: 4, fields: []field{ // Transactions
			{kind: kString}, // TransactionalId
			{kind: kInt64},  // ProducerId
			{kind: kInt16},  // ProducerEpoch
			{kind: kInt8},   // VerifyOnly
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AddPartitionsToTxnRequestTransactionTopic{}), fields: []field{ // Topics
				{kind: kString},             // Name
				{kind: kInt32, array: true}, // Partitions
			}},
		}},
		{kind: kString, until: 4}, // V3AndBelowTransactionalId
		{kind: kInt64, until: 4},  // V3AndBelowProducerId
		{kind: kInt16, until: 4},  // V3AndBelowProducerEpoch
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AddPartitionsToTxnRequestTopic{}), until: 4, fields: []field{ // V3AndBelowTopics
			{kind: kString},             // Name
			{kind: kInt32, array: true}, // Partitions
		}},
	},
}

var layoutAddOffsetsToTxn = layout{
	min: 0, max: 4, flex: 3, size: unsafe.Sizeof(kmsg.AddOffsetsToTxnRequest{}),
	fields: []field{
		{kind: kString}, // TransactionalId
		{kind: kInt64},  // ProducerId
		{kind: kInt16},  // ProducerEpoch
		{kind: kString}, // GroupId
	},
}

var layoutEndTxn = layout{
	min: 0, max: 5, flex: 3, size: unsafe.Sizeof(kmsg.EndTxnRequest{}),
	fields: []field{
		{kind: kString}, // TransactionalId
		{kind: kInt64},  // ProducerId
		{kind: kInt16},  // ProducerEpoch
		{kind: kInt8},   // Committed
	},
}

var layoutWriteTxnMarkers = layout{
	min: 1, max: 2, flex: 1, size: unsafe.Sizeof(kmsg.WriteTxnMarkersRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.WriteTxnMarkersRequestMarker{}), fields: []field{ // Markers
			{kind: kInt64}, // ProducerId
			{kind: kInt16}, // ProducerEpoch
			{kind: kInt8},  // TransactionResult
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.WriteTxnMarkersRequestMarkerTopic{}), fields: []field{ // Topics
				{kind: kString},             // Name
				{kind: kInt32, array: true}, // PartitionIndexes
			}},
			{kind: kInt32},         // CoordinatorEpoch
			{kind: kInt8, from: 2}, // TransactionVersion
		}},
	},
}

var layoutTxnOffsetCommit = layout{
	min: 0, max: 6, flex: 3, size: unsafe.Sizeof(kmsg.TxnOffsetCommitRequest{}),
	fields: []field{
		{kind: kString},          // TransactionalId
		{kind: kString},          // GroupId
		{kind: kInt64},           // ProducerId
		{kind: kInt16},           // ProducerEpoch
		{kind: kInt32, from: 3},  // GenerationIdOrMemberEpoch
		{kind: kString, from: 3}, // MemberId
		{kind: kString, boxed: true, nullable: true, from: 3}, // GroupInstanceId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TxnOffsetCommitRequestTopic{}), fields: []field{ // Topics
			{kind: kString, until: 6}, // Name
			{kind: kUUID, from: 6},    // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.TxnOffsetCommitRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},          // PartitionIndex
				{kind: kInt64},          // CommittedOffset
				{kind: kInt32, from: 2}, // CommittedLeaderEpoch
				{kind: kString, boxed: true, nullable: true}, // CommittedMetadata
			}},
		}},
	},
}

var layoutDescribeAcls = layout{
	min: 1, max: 3, flex: 2, size: unsafe.Sizeof(kmsg.DescribeACLsRequest{}),
	fields: []field{
		{kind: kInt8}, // ResourceTypeFilter
		{kind: kString, boxed: true, nullable: true}, // ResourceNameFilter
		{kind: kInt8}, // PatternTypeFilter
		{kind: kString, boxed: true, nullable: true}, // PrincipalFilter
		{kind: kString, boxed: true, nullable: true}, // HostFilter
		{kind: kInt8}, // Operation
		{kind: kInt8}, // PermissionType
	},
}

var layoutCreateAcls = layout{
	min: 1, max: 3, flex: 2, size: unsafe.Sizeof(kmsg.CreateACLsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.CreateACLsRequestCreation{}), fields: []field{ // Creations
			{kind: kInt8},   // ResourceType
			{kind: kString}, // ResourceName
			{kind: kInt8},   // ResourcePatternType
			{kind: kString}, // Principal
			{kind: kString}, // Host
			{kind: kInt8},   // Operation
			{kind: kInt8},   // PermissionType
		}},
	},
}

var layoutDeleteAcls = layout{
	min: 1, max: 3, flex: 2, size: unsafe.Sizeof(kmsg.DeleteACLsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DeleteACLsRequestFilter{}), fields: []field{ // Filters
			{kind: kInt8}, // ResourceTypeFilter
			{kind: kString, boxed: true, nullable: true}, // ResourceNameFilter
			{kind: kInt8}, // PatternTypeFilter
			{kind: kString, boxed: true, nullable: true}, // PrincipalFilter
			{kind: kString, boxed: true, nullable: true}, // HostFilter
			{kind: kInt8}, // Operation
			{kind: kInt8}, // PermissionType
		}},
	},
}

var layoutDescribeConfigs = layout{
	min: 1, max: 4, flex: 4, size: unsafe.Sizeof(kmsg.DescribeConfigsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeConfigsRequestResource{}), fields: []field{ // Resources
			{kind: kInt8},   // ResourceType
			{kind: kString}, // ResourceName
			{kind: kString, array: true, nullable: true}, // ConfigurationKeys
		}},
		{kind: kInt8},          // IncludeSynonyms
		{kind: kInt8, from: 3}, // IncludeDocumentation
	},
}

var layoutAlterConfigs = layout{
	min: 0, max: 2, flex: 2, size: unsafe.Sizeof(kmsg.AlterConfigsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterConfigsRequestResource{}), fields: []field{ // Resources
			{kind: kInt8},   // ResourceType
			{kind: kString}, // ResourceName
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterConfigsRequestResourceConfig{}), fields: []field{ // Configs
				{kind: kString}, // Name
				{kind: kString, boxed: true, nullable: true}, // Value
			}},
		}},
		{kind: kInt8}, // ValidateOnly
	},
}

var layoutAlterReplicaLogDirs = layout{
	min: 1, max: 2, flex: 2, size: unsafe.Sizeof(kmsg.AlterReplicaLogDirsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterReplicaLogDirsRequestDir{}), fields: []field{ // Dirs
			{kind: kString}, // Path
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterReplicaLogDirsRequestDirTopic{}), fields: []field{ // Topics
				{kind: kString},             // Name
				{kind: kInt32, array: true}, // Partitions
			}},
		}},
	},
}

var layoutDescribeLogDirs = layout{
	min: 1, max: 5, flex: 2, size: unsafe.Sizeof(kmsg.DescribeLogDirsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeLogDirsRequestTopic{}), nullable: true, fields: []field{ // Topics
			{kind: kString},             // Topic
			{kind: kInt32, array: true}, // Partitions
		}},
	},
}

var layoutSaslAuthenticate = layout{
	min: 0, max: 2, flex: 2, size: unsafe.Sizeof(kmsg.SASLAuthenticateRequest{}),
	fields: []field{
		{kind: kBytes}, // AuthBytes
	},
}

var layoutCreatePartitions = layout{
	min: 0, max: 3, flex: 2, size: unsafe.Sizeof(kmsg.CreatePartitionsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.CreatePartitionsRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Name
			{kind: kInt32},  // Count
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.CreatePartitionsRequestTopicAssignment{}), nullable: true, fields: []field{ // Assignments
				{kind: kInt32, array: true}, // BrokerIds
			}},
		}},
		{kind: kInt32}, // TimeoutMs
		{kind: kInt8},  // ValidateOnly
	},
}

var layoutCreateDelegationToken = layout{
	min: 1, max: 3, flex: 2, size: unsafe.Sizeof(kmsg.CreateDelegationTokenRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true, from: 3}, // OwnerPrincipalType
		{kind: kString, boxed: true, nullable: true, from: 3}, // OwnerPrincipalName
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.CreateDelegationTokenRequestRenewer{}), fields: []field{ // Renewers
			{kind: kString}, // PrincipalType
			{kind: kString}, // PrincipalName
		}},
		{kind: kInt64}, // MaxLifetimeMs
	},
}

var layoutRenewDelegationToken = layout{
	min: 1, max: 2, flex: 2, size: unsafe.Sizeof(kmsg.RenewDelegationTokenRequest{}),
	fields: []field{
		{kind: kBytes}, // Hmac
		{kind: kInt64}, // RenewPeriodMs
	},
}

var layoutExpireDelegationToken = layout{
	min: 1, max: 2, flex: 2, size: unsafe.Sizeof(kmsg.ExpireDelegationTokenRequest{}),
	fields: []field{
		{kind: kBytes}, // Hmac
		{kind: kInt64}, // ExpiryTimePeriodMs
	},
}

var layoutDescribeDelegationToken = layout{
	min: 1, max: 3, flex: 2, size: unsafe.Sizeof(kmsg.DescribeDelegationTokenRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeDelegationTokenRequestOwner{}), nullable: true, fields: []field{ // Owners
			{kind: kString}, // PrincipalType
			{kind: kString}, // PrincipalName
		}},
	},
}

var layoutDeleteGroups = layout{
	min: 0, max: 3, flex: 2, size: unsafe.Sizeof(kmsg.DeleteGroupsRequest{}),
	fields: []field{
		{kind: kString, array: true}, // GroupsNames
	},
}

var layoutElectLeaders = layout{
	min: 0, max: 2, flex: 2, size: unsafe.Sizeof(kmsg.ElectLeadersRequest{}),
	fields: []field{
		{kind: kInt8, from: 1}, // ElectionType
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ElectLeadersRequestTopic{}), nullable: true, fields: []field{ // TopicPartitions
			{kind: kString},             // Topic
			{kind: kInt32, array: true}, // Partitions
		}},
		{kind: kInt32}, // TimeoutMs
	},
}
