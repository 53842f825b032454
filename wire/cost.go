package wire

import (
	"encoding/binary"
	"fmt"
)

// kind is the type of a field, or of an array's elements.
type kind uint8

const (
	kInt8 kind = iota // also bool
	kInt16
	kInt32
	kInt64 // also float64
	kUUID
	kString
	kBytes // also records; aliased by the decoder, never copied
	kStruct
)

// noVersion is a version that no request reaches.
const noVersion = 1<<15 - 1

// layout describes one request, as much of it as walking over it takes.
type layout struct {
	min, max int16   // supported versions, inclusive
	flex     int16   // first flexible version
	size     uintptr // of the decoded struct
	fields   []field
}

// field is one field of a request, in wire order.
type field struct {
	kind     kind
	array    bool
	boxed    bool // the decoder allocates the value and keeps a pointer: *string, *struct
	nullable bool // from version nullFrom on
	tagged   bool // in the tag section, under tag
	nullFrom int16
	from     int16 // first version that has the field
	until    int16 // first version without it; 0: none
	tag      uint32
	size     uintptr // of the decoded struct (kStruct)
	fields   []field // of the struct
}

func (f *field) in(version int16) bool {
	return version >= f.from && (f.until == 0 || version < f.until)
}

// Reasons for a malformed request. The last two are Kafka's: kmsg would decode them.
var (
	errShort     = fmt.Errorf("%w: it ends too early", ErrMalformed)
	errVarint    = fmt.Errorf("%w: varint longer than 32 bits", ErrMalformed)
	errCount     = fmt.Errorf("%w: more elements than the remaining bytes can hold", ErrMalformed)
	errNull      = fmt.Errorf("%w: null where a value is needed", ErrMalformed)
	errStringLen = fmt.Errorf("%w: string longer than 32767 bytes", ErrMalformed)
)

const (
	stringSize    = 16 // a string header
	maxStringLen  = 1<<15 - 1
	tagMapSize    = 352 // the map of unknown tags with its first group of slots
	tagMapSlots   = 8   // tags in the first group
	tagGrowSize   = 1024
	tagSize       = 192 // each unknown tag of a larger map, all its growth included
	sliceElemSize = 24
)

// DecodeCost tells how many bytes kmsg will allocate to decode body, the request struct included, by walking over body
// without allocating. version must be one that Kafka 4.4 serves for the key. Byte fields cost nothing: they alias body.
//
// The error, an ErrMalformed, says that Kafka would not read body either: a count that the remaining bytes can't hold, a
// null where none is allowed, a varint or string too long, an early end. Bytes after the request are legal, as are
// negative lengths of anything nullable. A body without an error decodes without an error.
func DecodeCost(key, version int16, body []byte) (int64, error) {
	l := layoutOf(key)
	if l == nil {
		return 0, fmt.Errorf("%w %d", ErrUnknownKey, key)
	}
	if version < l.min || version > l.max {
		return 0, fmt.Errorf("%w: %s version %d", ErrMalformed, KeyName(key), version)
	}
	w := walker{src: body, version: version, flex: version >= l.flex, cost: allocSize(int64(l.size))}
	if err := w.structure(l.fields); err != nil {
		return 0, fmt.Errorf("%s v%d: %w", KeyName(key), version, err)
	}
	return w.cost, nil
}

// allocSize bounds what the runtime takes for an object of n bytes: n rounded up to a size class.
func allocSize(n int64) int64 {
	switch {
	case n == 0:
		return 0
	case n <= 128:
		return (n + 15) &^ 15
	case n <= 1024:
		return n + n/8 + 16
	case n <= 32<<10:
		return n + n/5
	}
	return (n + 8191) &^ 8191
}

// walker walks over a request and adds up its cost.
type walker struct {
	src     []byte
	version int16
	flex    bool
	cost    int64
}

func (w *walker) structure(fields []field) error {
	for i := range fields {
		if f := &fields[i]; !f.tagged && f.in(w.version) {
			if err := w.field(f); err != nil {
				return err
			}
		}
	}
	if w.flex {
		return w.tags(fields)
	}
	return nil
}

// field walks over one field; what does not need a length is skipped at once.
func (w *walker) field(f *field) error {
	null := f.nullable && w.version >= f.nullFrom
	if f.array {
		return w.array(f, null)
	}
	switch f.kind {
	case kString:
		return w.string(null, f.boxed)
	case kBytes:
		return w.bytes(null)
	case kStruct:
		if null {
			if len(w.src) < 1 {
				return errShort
			}
			present := int8(w.src[0])
			w.src = w.src[1:]
			if present < 0 {
				return nil
			}
		}
		if f.boxed {
			w.cost += allocSize(int64(f.size))
		}
		return w.structure(f.fields)
	}
	return w.skip(int64(f.kind.width()))
}

// width is the number of bytes of a fixed-size kind, on the wire and in memory.
func (k kind) width() int {
	switch k {
	case kInt8:
		return 1
	case kInt16:
		return 2
	case kInt32:
		return 4
	case kInt64:
		return 8
	}
	return 16
}

func (w *walker) array(f *field, null bool) error {
	n, there, err := w.nullable(null)
	if err != nil || !there {
		return err
	}
	if n > int64(len(w.src)) {
		return errCount
	}
	switch f.kind {
	case kString, kBytes:
		elem := int64(stringSize)
		if f.kind == kBytes {
			elem = sliceElemSize
		}
		w.cost += allocSize(n * elem)
		for range n {
			if f.kind == kString {
				err = w.string(false, false)
			} else {
				err = w.bytes(false)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case kStruct:
		w.cost += allocSize(n * int64(f.size))
		for range n {
			if err := w.structure(f.fields); err != nil {
				return err
			}
		}
		return nil
	}
	size := n * int64(f.kind.width())
	w.cost += allocSize(size)
	return w.skip(size)
}

func (w *walker) string(null, boxed bool) error {
	var n int64
	if w.flex {
		u, err := w.uvarint()
		if err != nil {
			return err
		}
		n = int64(u) - 1
	} else {
		v, ok := w.int16()
		if !ok {
			return errShort
		}
		n = int64(v)
	}
	switch {
	case n < 0 && null:
		return nil
	case n < 0:
		return errNull
	case n > int64(len(w.src)):
		return errShort
	case n > maxStringLen:
		return errStringLen
	}
	w.cost += allocSize(n)
	if boxed {
		w.cost += stringSize
	}
	w.src = w.src[n:]
	return nil
}

func (w *walker) bytes(null bool) error {
	n, there, err := w.nullable(null)
	if err != nil || !there {
		return err
	}
	return w.skip(n)
}

// nullable reads a length. Nothing follows a null, which is an error unless null allows it.
func (w *walker) nullable(null bool) (n int64, there bool, err error) {
	n, err = w.length()
	if err == nil && n < 0 && !null {
		err = errNull
	}
	return n, n >= 0 && err == nil, err
}

// tags walks over a tag section; fields are those of the struct that it ends, nil for a header.
func (w *walker) tags(fields []field) error {
	n, err := w.uvarint()
	if err != nil || n == 0 {
		return err
	}
	unknown := int64(0)
	for range n {
		tag, err := w.uvarint()
		if err != nil {
			return err
		}
		size, err := w.uvarint()
		if err != nil {
			return err
		}
		if int64(size) > int64(len(w.src)) {
			return errShort
		}
		rest := w.src[size:]
		f := w.tagged(fields, tag)
		if f == nil {
			unknown++
		} else {
			w.src = w.src[:size]
			if err := w.field(f); err != nil {
				return err
			}
		}
		w.src = rest
	}
	if unknown > 0 {
		w.cost += tagMapSize
	}
	if unknown > tagMapSlots {
		w.cost += tagGrowSize + unknown*tagSize
	}
	return nil
}

func (w *walker) tagged(fields []field, tag uint32) *field {
	for i := range fields {
		if f := &fields[i]; f.tagged && f.tag == tag && f.in(w.version) {
			return f
		}
	}
	return nil
}

func (w *walker) skip(n int64) error {
	if n > int64(len(w.src)) {
		return errShort
	}
	w.src = w.src[n:]
	return nil
}

func (w *walker) int16() (int16, bool) {
	if len(w.src) < 2 {
		return 0, false
	}
	v := int16(binary.BigEndian.Uint16(w.src))
	w.src = w.src[2:]
	return v, true
}

// length reads the length of an array or of bytes; negative: null.
func (w *walker) length() (int64, error) {
	if w.flex {
		u, err := w.uvarint()
		return int64(int32(u) - 1), err
	}
	if len(w.src) < 4 {
		return 0, errShort
	}
	v := int32(binary.BigEndian.Uint32(w.src))
	w.src = w.src[4:]
	return int64(v), nil
}

func (w *walker) uvarint() (uint32, error) {
	if len(w.src) > 0 && w.src[0] < 0x80 {
		v := uint32(w.src[0])
		w.src = w.src[1:]
		return v, nil
	}
	var v uint32
	for i := range min(len(w.src), 5) {
		c := w.src[i]
		if i == 4 && c > 0x0f {
			return 0, errVarint
		}
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			w.src = w.src[i+1:]
			return v, nil
		}
	}
	return 0, errShort
}
