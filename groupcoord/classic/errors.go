package classic

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// AppendError is what a client is told when a coordinator record could not be written: codes that make it find the
// coordinator again, never codes of the log (Kafka: appendGroupMetadataErrorToResponseError).
func AppendError(err error) *kerr.Error {
	ke, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return kerr.UnknownServerError
	}
	switch ke {
	case kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut:
		return kerr.CoordinatorNotAvailable
	case kerr.NotLeaderForPartition, kerr.KafkaStorageError:
		return kerr.NotCoordinator
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidFetchSize:
		return kerr.UnknownServerError
	}
	return ke
}
