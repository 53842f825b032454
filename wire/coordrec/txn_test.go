package coordrec_test

import (
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// TestTxnGolden reads and writes what Kafka 4.4 wrote for one transaction of a librdkafka producer.
func TestTxnGolden(t *testing.T) {
	const key = "0000000874786e2d676f6c64"
	value := func(status int8, updated, started int64, topics []coordrec.TxnTopic) coordrec.TxnValue {
		return coordrec.TxnValue{Version: 1, PreviousProducerID: 0, NextProducerID: wire.NoProducer, NextProducerEpoch: wire.NoEpoch,
			TimeoutMs: 60000, Status: status, Topics: topics, LastUpdateMs: updated, StartMs: started}
	}
	in := []coordrec.TxnTopic{{Topic: "txn-gold", Partitions: []int32{0}}}
	for _, tc := range []struct {
		name, hex string
		want      coordrec.TxnValue
	}{
		{"empty", "0001000000000000000000000000ea600000000001a2294117b1ffffffffffffffff0100080000000000000000", value(0, 0x1a2294117b1, -1, nil)},
		{"ongoing", "0001000000000000000000000000ea6001020974786e2d676f6c64020000000000000001a229411cd2000001a229411cd20100080000000000000000", value(1, 0x1a229411cd2, 0x1a229411cd2, in)},
		{"prepared", "0001000000000000000000000000ea6002020974786e2d676f6c64020000000000000001a229411d92000001a229411cd20100080000000000000000", value(2, 0x1a229411d92, 0x1a229411cd2, in)},
		{"complete", "0001000000000000000000000000ea600401000001a229411dac000001a229411cd20100080000000000000000", value(4, 0x1a229411dac, 0x1a229411cd2, []coordrec.TxnTopic{})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := hex.DecodeString(tc.hex)
			if err != nil {
				t.Fatal(err)
			}
			got, err := coordrec.DecodeTxnValue(b)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(*got, tc.want) {
				t.Fatalf("read %+v, want %+v", *got, tc.want)
			}
			if out := hex.EncodeToString(tc.want.Append(nil)); out != tc.hex {
				t.Fatalf("wrote %s, want %s", out, tc.hex)
			}
		})
	}
	if out := hex.EncodeToString(coordrec.AppendTxnKey(nil, "txn-gold")); out != key {
		t.Fatalf("wrote key %s, want %s", out, key)
	}
}

func TestTxnValueOfLaterReleases(t *testing.T) {
	v := coordrec.TxnValue{Version: 1, ProducerID: 5, PreviousProducerID: 4, NextProducerID: 6, NextProducerEpoch: 7, ClientTxnVersion: 2, ProducerEpoch: 3}
	b := v.Append(nil)
	at := len(v.Append(nil)) - (2 + 8 + 2 + 8 + 2 + 2 + 2 + 2) - 1
	if b[at] != 4 {
		t.Fatalf("the count of tags is %d, want 4", b[at])
	}
	b[at] = 5
	b = append(b, 9, 3, 'n', 'e', 'w')
	got, err := coordrec.DecodeTxnValue(b)
	if err != nil {
		t.Fatal(err)
	}
	v.UnknownTaggedFields = 1
	if !reflect.DeepEqual(*got, v) {
		t.Fatalf("read %+v, want %+v", *got, v)
	}
	b[1] = 2
	var unknown *coordrec.UnknownRecordError
	if _, err := coordrec.DecodeTxnValue(b); !errors.As(err, &unknown) {
		t.Fatalf("version 2: %v", err)
	}
	if _, err := coordrec.DecodeTxnKey([]byte{0, 1, 0, 0}); !errors.Is(err, coordrec.ErrTxnKeyVersion) {
		t.Fatalf("key version 1: %v", err)
	}
}

func FuzzTxnValue(f *testing.F) {
	v := coordrec.TxnValue{Version: 1, ProducerID: 5, PreviousProducerID: 4, NextProducerID: 6, NextProducerEpoch: -1,
		Topics: []coordrec.TxnTopic{{Topic: "t", Partitions: []int32{1, 2}}}}
	f.Add(v.Append(nil))
	v.Version, v.Topics = 0, nil
	f.Add(v.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := coordrec.DecodeTxnValue(b)
		if err != nil {
			return
		}
		again, err := coordrec.DecodeTxnValue(got.Append(nil))
		got.UnknownTaggedFields = 0
		if err != nil || !reflect.DeepEqual(got, again) {
			t.Fatalf("%+v read again as %+v, %v", got, again, err)
		}
	})
}
