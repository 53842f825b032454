package coordrec

import (
	"errors"
	"fmt"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of the value of a record of `__transaction_state`. TxnValueTagged is flexible; it is written where the
// finalised transaction.version is at least 1.
const (
	TxnValueFixed  int16 = 0
	TxnValueTagged int16 = 1
)

// Tagged fields of a TxnValueTagged.
const (
	tagPreviousProducerID = 0
	tagNextProducerID     = 1
	tagClientTxnVersion   = 2
	tagNextProducerEpoch  = 3
)

// TxnValue is the value of a record of `__transaction_state` (Kafka: TransactionLogValue).
type TxnValue struct {
	Version             int16 // TxnValueFixed loses what is tagged
	ProducerID          wire.ProducerID
	PreviousProducerID  wire.ProducerID // tagged; NoProducer: none
	NextProducerID      wire.ProducerID // tagged; NoProducer: none
	ProducerEpoch       wire.ProducerEpoch
	NextProducerEpoch   wire.ProducerEpoch // tagged; NoEpoch: none
	TimeoutMs           int32
	Status              int8
	Topics              []TxnTopic // nil stands for null and differs from empty
	LastUpdateMs        int64
	StartMs             int64 // -1: none
	ClientTxnVersion    int16 // tagged
	UnknownTaggedFields int   // how many were skipped when it was read
}

// TxnTopic is a topic with its partitions in a transaction.
type TxnTopic struct {
	Topic      string
	Partitions []int32
}

// AppendTxnKey appends the key of a record of `__transaction_state`.
func AppendTxnKey(dst []byte, transactionalID string) []byte {
	return kbin.AppendString(kbin.AppendInt16(dst, 0), transactionalID)
}

// ErrTxnKeyVersion is wrapped by DecodeTxnKey for a key of a later release. Kafka skips such records.
var ErrTxnKeyVersion = errors.New("unknown version of a transaction key")

// DecodeTxnKey reads the key of a record of `__transaction_state`.
func DecodeTxnKey(b []byte) (transactionalID string, err error) {
	r := kbin.Reader{Src: b}
	version := r.Int16()
	if r.Ok() && version != 0 {
		return "", fmt.Errorf("%w: %d", ErrTxnKeyVersion, version)
	}
	id := r.String()
	if err := r.Complete(); err != nil {
		return "", fmt.Errorf("%w: transaction key: %w", ErrMalformedRecord, err)
	}
	return id, nil
}

// Append appends v in its Version.
func (v *TxnValue) Append(dst []byte) []byte {
	flexible := v.Version >= TxnValueTagged
	dst = kbin.AppendInt16(dst, v.Version)
	dst = kbin.AppendInt64(dst, int64(v.ProducerID))
	dst = kbin.AppendInt16(dst, int16(v.ProducerEpoch))
	dst = kbin.AppendInt32(dst, v.TimeoutMs)
	dst = kbin.AppendInt8(dst, v.Status)
	if flexible {
		dst = kbin.AppendCompactNullableArrayLen(dst, len(v.Topics), v.Topics == nil)
	} else {
		dst = kbin.AppendNullableArrayLen(dst, len(v.Topics), v.Topics == nil)
	}
	for i := range v.Topics {
		t := &v.Topics[i]
		if flexible {
			dst = kbin.AppendCompactString(dst, t.Topic)
			dst = kbin.AppendCompactArrayLen(dst, len(t.Partitions))
		} else {
			dst = kbin.AppendString(dst, t.Topic)
			dst = kbin.AppendArrayLen(dst, len(t.Partitions))
		}
		for _, p := range t.Partitions {
			dst = kbin.AppendInt32(dst, p)
		}
		if flexible {
			dst = kbin.AppendUvarint(dst, 0)
		}
	}
	dst = kbin.AppendInt64(dst, v.LastUpdateMs)
	dst = kbin.AppendInt64(dst, v.StartMs)
	if flexible {
		dst = v.appendTags(dst)
	}
	return dst
}

func (v *TxnValue) appendTags(dst []byte) []byte {
	previous, next := v.PreviousProducerID != wire.NoProducer, v.NextProducerID != wire.NoProducer
	client, epoch := v.ClientTxnVersion != 0, v.NextProducerEpoch != wire.NoEpoch
	n := uint32(0)
	for _, present := range []bool{previous, next, client, epoch} {
		if present {
			n++
		}
	}
	dst = kbin.AppendUvarint(dst, n)
	if previous {
		dst = kbin.AppendInt64(append(dst, tagPreviousProducerID, 8), int64(v.PreviousProducerID))
	}
	if next {
		dst = kbin.AppendInt64(append(dst, tagNextProducerID, 8), int64(v.NextProducerID))
	}
	if client {
		dst = kbin.AppendInt16(append(dst, tagClientTxnVersion, 2), v.ClientTxnVersion)
	}
	if epoch {
		dst = kbin.AppendInt16(append(dst, tagNextProducerEpoch, 2), int16(v.NextProducerEpoch))
	}
	return dst
}

// DecodeTxnValue reads what Append writes. Tagged fields of later releases are counted and skipped, which is how this
// schema grows (KIP-915); another version is an *UnknownRecordError. The value shares nothing with b.
func DecodeTxnValue(b []byte) (*TxnValue, error) {
	r := kbin.Reader{Src: b}
	v := &TxnValue{PreviousProducerID: wire.NoProducer, NextProducerID: wire.NoProducer, NextProducerEpoch: wire.NoEpoch}
	v.Version = r.Int16()
	if r.Ok() && (v.Version < TxnValueFixed || v.Version > TxnValueTagged) {
		return nil, &UnknownRecordError{Type: 0, Version: int(v.Version)}
	}
	flexible := v.Version >= TxnValueTagged
	v.ProducerID, v.ProducerEpoch = wire.ProducerID(r.Int64()), wire.ProducerEpoch(r.Int16())
	v.TimeoutMs, v.Status = r.Int32(), r.Int8()
	if err := v.decodeTopics(&r, flexible); err != nil {
		return nil, err
	}
	v.LastUpdateMs, v.StartMs = r.Int64(), r.Int64()
	if flexible {
		v.decodeTags(&r)
	}
	if err := r.Complete(); err != nil {
		return nil, fmt.Errorf("%w: transaction value: %w", ErrMalformedRecord, err)
	}
	return v, nil
}

func (v *TxnValue) decodeTopics(r *kbin.Reader, flexible bool) error {
	length := func() int32 {
		if flexible {
			return r.CompactArrayLen()
		}
		return r.ArrayLen()
	}
	tooMany := func(n int32) bool { return int64(n) > int64(len(r.Src)) }
	n := length()
	if tooMany(n) {
		return fmt.Errorf("%w: %d topics in %d bytes", ErrMalformedRecord, n, len(r.Src))
	}
	if n >= 0 {
		v.Topics = make([]TxnTopic, 0, n)
	}
	for ; n > 0 && r.Ok(); n-- {
		var t TxnTopic
		if flexible {
			t.Topic = r.CompactString()
		} else {
			t.Topic = r.String()
		}
		m := length()
		if tooMany(m) {
			return fmt.Errorf("%w: %d partitions in %d bytes", ErrMalformedRecord, m, len(r.Src))
		}
		for ; m > 0 && r.Ok(); m-- {
			t.Partitions = append(t.Partitions, r.Int32())
		}
		if flexible {
			kmsg.SkipTags(r)
		}
		v.Topics = append(v.Topics, t)
	}
	return nil
}

func (v *TxnValue) decodeTags(r *kbin.Reader) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		number, size := r.Uvarint(), r.Uvarint()
		body := kbin.Reader{Src: r.Span(int(size))}
		switch number {
		case tagPreviousProducerID:
			v.PreviousProducerID = wire.ProducerID(body.Int64())
		case tagNextProducerID:
			v.NextProducerID = wire.ProducerID(body.Int64())
		case tagClientTxnVersion:
			v.ClientTxnVersion = body.Int16()
		case tagNextProducerEpoch:
			v.NextProducerEpoch = wire.ProducerEpoch(body.Int16())
		default:
			v.UnknownTaggedFields++
			continue
		}
		if body.Complete() != nil {
			r.Span(len(r.Src) + 1) // the reader is now as bad as the field
		}
	}
}
