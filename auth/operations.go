package auth

// Operation is an ACL operation, numbered as in Kafka's AclOperation.
type Operation int8

// Kafka's operations.
const (
	OpRead            Operation = 3
	OpWrite           Operation = 4
	OpCreate          Operation = 5
	OpDelete          Operation = 6
	OpAlter           Operation = 7
	OpDescribe        Operation = 8
	OpClusterAction   Operation = 9
	OpDescribeConfigs Operation = 10
	OpAlterConfigs    Operation = 11
	OpIdempotentWrite Operation = 12
)

// OperationsNotAsked is what an authorized-operations field holds when the client did not ask for it.
const OperationsNotAsked int32 = -2147483648

// bits packs operations into the bit field that Metadata and the describe APIs carry: bit n is operation n.
func bits(ops ...Operation) int32 {
	var v int32
	for _, op := range ops {
		v |= 1 << op
	}
	return v
}

// TopicOperations is every operation that exists for a topic, which is what a client may do while there are no ACLs.
func TopicOperations() int32 {
	return bits(OpRead, OpWrite, OpCreate, OpDelete, OpAlter, OpDescribe, OpDescribeConfigs, OpAlterConfigs)
}

// GroupOperations is every operation that exists for a group.
func GroupOperations() int32 {
	return bits(OpRead, OpDelete, OpDescribe, OpDescribeConfigs, OpAlterConfigs)
}

// ClusterOperations is every operation that exists for the cluster.
func ClusterOperations() int32 {
	return bits(OpCreate, OpClusterAction, OpDescribeConfigs, OpAlterConfigs, OpIdempotentWrite, OpAlter, OpDescribe)
}
