package wire

import (
	"unsafe"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests 44 to 67, field by field in wire order with Kafka's field names.

var layoutIncrementalAlterConfigs = layout{
	min: 0, max: 1, flex: 1, size: unsafe.Sizeof(kmsg.IncrementalAlterConfigsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.IncrementalAlterConfigsRequestResource{}), fields: []field{ // Resources
			{kind: kInt8},   // ResourceType
			{kind: kString}, // ResourceName
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.IncrementalAlterConfigsRequestResourceConfig{}), fields: []field{ // Configs
				{kind: kString}, // Name
				{kind: kInt8},   // ConfigOperation
				{kind: kString, boxed: true, nullable: true}, // Value
			}},
		}},
		{kind: kInt8}, // ValidateOnly
	},
}

var layoutAlterPartitionReassignments = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.AlterPartitionAssignmentsRequest{}),
	fields: []field{
		{kind: kInt32},         // TimeoutMs
		{kind: kInt8, from: 1}, // AllowReplicationFactorChange
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterPartitionAssignmentsRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Name
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterPartitionAssignmentsRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // PartitionIndex
				{kind: kInt32, array: true, nullable: true}, // Replicas
			}},
		}},
	},
}

var layoutListPartitionReassignments = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.ListPartitionReassignmentsRequest{}),
	fields: []field{
		{kind: kInt32}, // TimeoutMs
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.ListPartitionReassignmentsRequestTopic{}), nullable: true, fields: []field{ // Topics
			{kind: kString},             // Name
			{kind: kInt32, array: true}, // PartitionIndexes
		}},
	},
}

var layoutOffsetDelete = layout{
	min: 0, max: 0, flex: noVersion, size: unsafe.Sizeof(kmsg.OffsetDeleteRequest{}),
	fields: []field{
		{kind: kString}, // GroupId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetDeleteRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Name
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.OffsetDeleteRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // PartitionIndex
			}},
		}},
	},
}

var layoutDescribeClientQuotas = layout{
	min: 0, max: 1, flex: 1, size: unsafe.Sizeof(kmsg.DescribeClientQuotasRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeClientQuotasRequestComponent{}), fields: []field{ // Components
			{kind: kString}, // EntityType
			{kind: kInt8},   // MatchType
			{kind: kString, boxed: true, nullable: true}, // Match
		}},
		{kind: kInt8}, // Strict
	},
}

var layoutAlterClientQuotas = layout{
	min: 0, max: 1, flex: 1, size: unsafe.Sizeof(kmsg.AlterClientQuotasRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterClientQuotasRequestEntry{}), fields: []field{ // Entries
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterClientQuotasRequestEntryEntity{}), fields: []field{ // Entity
				{kind: kString}, // EntityType
				{kind: kString, boxed: true, nullable: true}, // EntityName
			}},
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterClientQuotasRequestEntryOp{}), fields: []field{ // Ops
				{kind: kString}, // Key
				{kind: kInt64},  // Value
				{kind: kInt8},   // Remove
			}},
		}},
		{kind: kInt8}, // ValidateOnly
	},
}

var layoutDescribeUserScramCredentials = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.DescribeUserSCRAMCredentialsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeUserSCRAMCredentialsRequestUser{}), nullable: true, fields: []field{ // Users
			{kind: kString}, // Name
		}},
	},
}

var layoutAlterUserScramCredentials = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.AlterUserSCRAMCredentialsRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterUserSCRAMCredentialsRequestDeletion{}), fields: []field{ // Deletions
			{kind: kString}, // Name
			{kind: kInt8},   // Mechanism
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterUserSCRAMCredentialsRequestUpsertion{}), fields: []field{ // Upsertions
			{kind: kString}, // Name
			{kind: kInt8},   // Mechanism
			{kind: kInt32},  // Iterations
			{kind: kBytes},  // Salt
			{kind: kBytes},  // SaltedPassword
		}},
	},
}

var layoutVote = layout{
	min: 0, max: 2, flex: 0, size: unsafe.Sizeof(kmsg.VoteRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // ClusterId
		{kind: kInt32, from: 1},                      // VoterId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.VoteRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // TopicName
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.VoteRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},         // PartitionIndex
				{kind: kInt32},         // ReplicaEpoch
				{kind: kInt32},         // ReplicaId
				{kind: kUUID, from: 1}, // ReplicaDirectoryId
				{kind: kUUID, from: 1}, // VoterDirectoryId
				{kind: kInt32},         // LastOffsetEpoch
				{kind: kInt64},         // LastOffset
				{kind: kInt8, from: 2}, // PreVote
			}},
		}},
	},
}

var layoutBeginQuorumEpoch = layout{
	min: 0, max: 1, flex: 1, size: unsafe.Sizeof(kmsg.BeginQuorumEpochRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // ClusterId
		{kind: kInt32, from: 1},                      // VoterId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.BeginQuorumEpochRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // TopicName
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.BeginQuorumEpochRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},         // PartitionIndex
				{kind: kUUID, from: 1}, // VoterDirectoryId
				{kind: kInt32},         // LeaderId
				{kind: kInt32},         // LeaderEpoch
			}},
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.BeginQuorumEpochRequestLeaderEndpoint{}), from: 1, fields: []field{ // LeaderEndpoints
			{kind: kString}, // Name
			{kind: kString}, // Host
			{kind: kInt16},  // Port
		}},
	},
}

var layoutEndQuorumEpoch = layout{
	min: 0, max: 1, flex: 1, size: unsafe.Sizeof(kmsg.EndQuorumEpochRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true}, // ClusterId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.EndQuorumEpochRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // TopicName
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.EndQuorumEpochRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},                        // PartitionIndex
				{kind: kInt32},                        // LeaderId
				{kind: kInt32},                        // LeaderEpoch
				{kind: kInt32, array: true, until: 1}, // PreferredSuccessors
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.EndQuorumEpochRequestTopicPartitionPreferredCandidate{}), from: 1, fields: []field{ // PreferredCandidates
					{kind: kInt32}, // CandidateId
					{kind: kUUID},  // CandidateDirectoryId
				}},
			}},
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.EndQuorumEpochRequestLeaderEndpoint{}), from: 1, fields: []field{ // LeaderEndpoints
			{kind: kString}, // Name
			{kind: kString}, // Host
			{kind: kInt16},  // Port
		}},
	},
}

var layoutDescribeQuorum = layout{
	min: 0, max: 2, flex: 0, size: unsafe.Sizeof(kmsg.DescribeQuorumRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeQuorumRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // TopicName
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeQuorumRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // PartitionIndex
			}},
		}},
	},
}

var layoutAlterPartition = layout{
	min: 2, max: 3, flex: 0, size: unsafe.Sizeof(kmsg.AlterPartitionRequest{}),
	fields: []field{
		{kind: kInt32}, // BrokerId
		{kind: kInt64}, // BrokerEpoch
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterPartitionRequestTopic{}), fields: []field{ // Topics
			{kind: kUUID}, // TopicId
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterPartitionRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32},                        // PartitionIndex
				{kind: kInt32},                        // LeaderEpoch
				{kind: kInt32, array: true, until: 3}, // NewIsr
				{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{}), from: 3, fields: []field{ // NewIsrWithEpochs
					{kind: kInt32}, // BrokerId
					{kind: kInt64}, // BrokerEpoch
				}},
				{kind: kInt8},  // LeaderRecoveryState
				{kind: kInt32}, // PartitionEpoch
			}},
		}},
	},
}

var layoutUpdateFeatures = layout{
	min: 0, max: 2, flex: 0, size: unsafe.Sizeof(kmsg.UpdateFeaturesRequest{}),
	fields: []field{
		{kind: kInt32}, // timeoutMs
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.UpdateFeaturesRequestFeatureUpdate{}), fields: []field{ // FeatureUpdates
			{kind: kString},         // Feature
			{kind: kInt16},          // MaxVersionLevel
			{kind: kInt8, until: 1}, // AllowDowngrade
			{kind: kInt8, from: 1},  // UpgradeType
		}},
		{kind: kInt8, from: 1}, // ValidateOnly
	},
}

var layoutEnvelope = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.EnvelopeRequest{}),
	fields: []field{
		{kind: kBytes},                 // RequestData
		{kind: kBytes, nullable: true}, // RequestPrincipal
		{kind: kBytes},                 // ClientHostAddress
	},
}

var layoutFetchSnapshot = layout{
	min: 0, max: 1, flex: 0, size: unsafe.Sizeof(kmsg.FetchSnapshotRequest{}),
	fields: []field{
		{kind: kString, boxed: true, nullable: true, tagged: true, tag: 0}, // ClusterId
		{kind: kInt32}, // ReplicaId
		{kind: kInt32}, // MaxBytes
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.FetchSnapshotRequestTopic{}), fields: []field{ // Topics
			{kind: kString}, // Name
			{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.FetchSnapshotRequestTopicPartition{}), fields: []field{ // Partitions
				{kind: kInt32}, // Partition
				{kind: kInt32}, // CurrentLeaderEpoch
				{kind: kStruct, size: unsafe.Sizeof(kmsg.FetchSnapshotRequestTopicPartitionSnapshotID{}), fields: []field{ // SnapshotId
					{kind: kInt64}, // EndOffset
					{kind: kInt32}, // Epoch
				}},
				{kind: kInt64}, // Position
				{kind: kUUID, from: 1, tagged: true, tag: 0}, // ReplicaDirectoryId
			}},
		}},
	},
}

var layoutDescribeCluster = layout{
	min: 0, max: 2, flex: 0, size: unsafe.Sizeof(kmsg.DescribeClusterRequest{}),
	fields: []field{
		{kind: kInt8},          // IncludeClusterAuthorizedOperations
		{kind: kInt8, from: 1}, // EndpointType
		{kind: kInt8, from: 2}, // IncludeFencedBrokers
	},
}

var layoutDescribeProducers = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.DescribeProducersRequest{}),
	fields: []field{
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.DescribeProducersRequestTopic{}), fields: []field{ // Topics
			{kind: kString},             // Name
			{kind: kInt32, array: true}, // PartitionIndexes
		}},
	},
}

var layoutBrokerRegistration = layout{
	min: 0, max: 4, flex: 0, size: unsafe.Sizeof(kmsg.BrokerRegistrationRequest{}),
	fields: []field{
		{kind: kInt32},  // BrokerId
		{kind: kString}, // ClusterId
		{kind: kUUID},   // IncarnationId
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.BrokerRegistrationRequestListener{}), fields: []field{ // Listeners
			{kind: kString}, // Name
			{kind: kString}, // Host
			{kind: kInt16},  // Port
			{kind: kInt16},  // SecurityProtocol
		}},
		{kind: kStruct, array: true, size: unsafe.Sizeof(kmsg.BrokerRegistrationRequestFeature{}), fields: []field{ // Features
			{kind: kString}, // Name
			{kind: kInt16},  // MinSupportedVersion
			{kind: kInt16},  // MaxSupportedVersion
		}},
		{kind: kString, boxed: true, nullable: true}, // Rack
		{kind: kInt8, from: 1},                       // IsMigratingZkBroker
		{kind: kUUID, array: true, from: 2},          // LogDirs
		{kind: kInt64, from: 3},                      // PreviousBrokerEpoch
	},
}

var layoutBrokerHeartbeat = layout{
	min: 0, max: 2, flex: 0, size: unsafe.Sizeof(kmsg.BrokerHeartbeatRequest{}),
	fields: []field{
		{kind: kInt32}, // BrokerId
		{kind: kInt64}, // BrokerEpoch
		{kind: kInt64}, // CurrentMetadataOffset
		{kind: kInt8},  // WantFence
		{kind: kInt8},  // WantShutDown
		{kind: kUUID, array: true, from: 1, tagged: true, tag: 0},                 // OfflineLogDirs
		{kind: kUUID, array: true, nullable: true, from: 2, tagged: true, tag: 1}, // CordonedLogDirs
	},
}

var layoutUnregisterBroker = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.UnregisterBrokerRequest{}),
	fields: []field{
		{kind: kInt32}, // BrokerId
	},
}

var layoutDescribeTransactions = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.DescribeTransactionsRequest{}),
	fields: []field{
		{kind: kString, array: true}, // TransactionalIds
	},
}

var layoutListTransactions = layout{
	min: 0, max: 2, flex: 0, size: unsafe.Sizeof(kmsg.ListTransactionsRequest{}),
	fields: []field{
		{kind: kString, array: true},                          // StateFilters
		{kind: kInt64, array: true},                           // ProducerIdFilters
		{kind: kInt64, from: 1},                               // DurationFilter
		{kind: kString, boxed: true, nullable: true, from: 2}, // TransactionalIdPattern
	},
}

var layoutAllocateProducerIds = layout{
	min: 0, max: 0, flex: 0, size: unsafe.Sizeof(kmsg.AllocateProducerIDsRequest{}),
	fields: []field{
		{kind: kInt32}, // BrokerId
		{kind: kInt64}, // BrokerEpoch
	},
}
