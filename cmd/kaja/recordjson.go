package main

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// jsonRecord is a record as `kaja consume --json` writes it and `kaja produce --json` reads it: one object a line. Bytes
// that are no text are in the fields that end in _base64, so that nothing is lost on the way.
type jsonRecord struct {
	Topic       string       `json:"topic,omitempty"`
	Partition   *int32       `json:"partition,omitempty"`
	Offset      *int64       `json:"offset,omitempty"`
	Timestamp   *int64       `json:"timestamp,omitempty"` // milliseconds since 1970
	Key         *string      `json:"key,omitempty"`
	KeyBase64   []byte       `json:"key_base64,omitempty"`
	Value       *string      `json:"value"` // null: a tombstone
	ValueBase64 []byte       `json:"value_base64,omitempty"`
	Headers     []jsonHeader `json:"headers,omitempty"`
}

type jsonHeader struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"`
	ValueBase64 []byte  `json:"value_base64,omitempty"`
}

// textOrBytes is b as text, or as bytes where it is not UTF-8; null is neither.
func textOrBytes(b []byte) (*string, []byte) {
	if b == nil {
		return nil, nil
	}
	if !utf8.Valid(b) {
		return nil, b
	}
	s := string(b)
	return &s, nil
}

func bytesOf(text *string, raw []byte) []byte {
	if text != nil {
		return []byte(*text)
	}
	return raw
}

func appendJSONRecord(out []byte, r *kgo.Record) ([]byte, error) {
	ms := r.Timestamp.UnixMilli()
	j := jsonRecord{Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset, Timestamp: &ms}
	j.Key, j.KeyBase64 = textOrBytes(r.Key)
	j.Value, j.ValueBase64 = textOrBytes(r.Value)
	for _, h := range r.Headers {
		jh := jsonHeader{Key: h.Key}
		jh.Value, jh.ValueBase64 = textOrBytes(h.Value)
		j.Headers = append(j.Headers, jh)
	}
	line, err := json.Marshal(j)
	if err != nil {
		return out, err
	}
	return append(append(out, line...), '\n'), nil
}

// parseJSONRecord reads one line. The topic and the offset in it are passed over: it is produced to where the command says.
func parseJSONRecord(line []byte) (*kgo.Record, error) {
	var j jsonRecord
	if err := json.Unmarshal(line, &j); err != nil {
		return nil, fmt.Errorf("not a record as \"kaja consume --json\" writes it: %w", err)
	}
	r := &kgo.Record{Key: bytesOf(j.Key, j.KeyBase64), Value: bytesOf(j.Value, j.ValueBase64), Partition: -1}
	if j.Partition != nil {
		r.Partition = *j.Partition
	}
	if j.Timestamp != nil {
		r.Timestamp = time.UnixMilli(*j.Timestamp)
	}
	for _, h := range j.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: bytesOf(h.Value, h.ValueBase64)})
	}
	return r, nil
}
