package api

import (
	"context"
	"errors"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/twmb/franz-go/pkg/kerr"
)

// errorCode is the only mapping from errors to Kafka's codes.
//
// A protocol error (*kerr.Error, however deeply wrapped) is its own code. A storage error is KAFKA_STORAGE_ERROR, a
// cancelled or expired context REQUEST_TIMED_OUT, anything else UNKNOWN_SERVER_ERROR.
//
// To a producer the codes 6, 7, 20, 56 and -1 mean that the record may or may not appear; every other code means that
// it never will. So whatever may have left bytes behind must come out as one of those: a storage error that wraps a
// protocol error is a storage error first.
func errorCode(err error) int16 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, log.ErrStorage), errors.Is(err, replica.ErrOffline), errors.Is(err, log.ErrClosed):
		return kerr.KafkaStorageError.Code
	case errors.Is(err, log.ErrOffsetOutOfRange):
		return kerr.OffsetOutOfRange.Code
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return kerr.RequestTimedOut.Code
	}
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return e.Code
	}
	return kerr.UnknownServerError.Code
}

// readErrorCode is errorCode for reads, where damaged data has a code of its own.
func readErrorCode(err error) int16 {
	if errors.Is(err, log.ErrCorrupt) {
		return kerr.CorruptMessage.Code
	}
	return errorCode(err)
}
