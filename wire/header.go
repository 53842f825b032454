package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Errors of ParseHeader and DecodeCost; test with errors.Is. Kafka closes the connection on each of them.
var (
	// ErrMalformed: the bytes are not the request that their key and version announce.
	ErrMalformed = errors.New("malformed request")
	// ErrUnknownKey: no request of Kafka 4.4 has this key. It is an ErrMalformed too.
	ErrUnknownKey = fmt.Errorf("%w: unknown key", ErrMalformed)
)

// KeyApiVersions is the one key whose responses always have header v0, and whose unsupported versions are answered.
const KeyApiVersions int16 = 18

// KeyName is Kafka's name of a request key, also for the removed ones; "Unknown(n)" for others.
func KeyName(key int16) string {
	if key >= 0 && int(key) < len(keyNames) {
		return keyNames[key]
	}
	return fmt.Sprintf("Unknown(%d)", key)
}

// KnownKey reports whether Kafka 4.4 has a request with this key.
func KnownKey(key int16) bool { return layoutOf(key) != nil }

func layoutOf(key int16) *layout {
	if key < 0 || int(key) >= len(layouts) {
		return nil
	}
	return layouts[key]
}

// Flexible reports whether the request and the response of this key and version use compact types and tagged fields
// (KIP-482), and so the request header v2. The version may lie outside the supported range; it is false for unknown keys.
func Flexible(key, version int16) bool {
	l := layoutOf(key)
	return l != nil && version >= l.flex
}

// Header is a request header, v1 or v2.
type Header struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      *string // nil = null, which Kafka treats as ""
}

// Client is the client id, "" for null.
func (h *Header) Client() string {
	if h.ClientID == nil {
		return ""
	}
	return *h.ClientID
}

// ParseHeader reads the header of a frame (the frame's own size field excluded). body is what follows and aliases frame.
// The key is known afterwards, the version need not be supported. Tagged fields are checked and dropped.
//
// Errors: ErrMalformed, ErrUnknownKey; h holds what was read until then.
func ParseHeader(frame []byte) (h Header, body []byte, err error) {
	body, err = h.Parse(frame)
	return h, body, err
}

// Parse is ParseHeader into h. It keeps the string of the last client id if the new one is equal, so that a connection
// that reuses its Header allocates nothing per request; the old *ClientID itself is never changed.
func (h *Header) Parse(frame []byte) (body []byte, err error) {
	if len(frame) < 8 {
		return nil, fmt.Errorf("%w: header of %d bytes", ErrMalformed, len(frame))
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	if !KnownKey(h.Key) {
		return nil, fmt.Errorf("%w %d", ErrUnknownKey, h.Key)
	}
	w := walker{src: frame[8:]}
	// Not compact even in header v2; every negative length is null (asked of Kafka 4.4).
	n, ok := w.int16()
	if !ok || n >= 0 && int(n) > len(w.src) {
		return nil, fmt.Errorf("%w: client id", ErrMalformed)
	}
	switch {
	case n < 0:
		h.ClientID = nil
	case h.ClientID == nil || *h.ClientID != string(w.src[:n]):
		id := string(w.src[:n])
		h.ClientID = &id
	}
	w.src = w.src[max(n, 0):]
	if Flexible(h.Key, h.Version) {
		if err := w.tags(nil); err != nil {
			return nil, err
		}
	}
	return w.src, nil
}

// AppendResponseHeader appends the header of a response: v1 (with an empty tag section) where the version is flexible,
// but always v0 for ApiVersions, whose client does not yet know what the broker speaks.
func AppendResponseHeader(dst []byte, key, version int16, correlationID int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if key != KeyApiVersions && Flexible(key, version) {
		dst = append(dst, 0)
	}
	return dst
}
