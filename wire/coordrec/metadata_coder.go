package coordrec

import (
	"errors"
	"fmt"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kbin"
)

// coder walks the fields of a record in one direction or the other, so that each schema is written down once.
type coder struct {
	encoding bool
	version  int16
	dst      []byte      // encoding
	r        kbin.Reader // decoding
	err      error       // decoding: the first violation that the reader itself does not see
}

// tag is one tagged field: its number, the first version that has it, whether it differs from its default, and the
// function that walks its value.
type tag struct {
	number  uint32
	since   int16
	present bool
	walk    func()
}

// tags walks the tagged fields that end a struct; known is in ascending order of numbers. A tag that is not known is
// an error: schemas only grow with a version, and a reader must not skip what it does not know.
func (c *coder) tags(known ...tag) {
	if !c.encoding {
		c.decodeTags(known)
		return
	}
	n := uint32(0)
	for i := range known {
		if known[i].present && c.version >= known[i].since {
			n++
		}
	}
	c.uvarint(n)
	for i := range known {
		if !known[i].present || c.version < known[i].since {
			continue
		}
		c.uvarint(known[i].number)
		outer := c.dst
		c.dst = nil
		known[i].walk()
		inner := c.dst
		c.dst = kbin.AppendUvarint(outer, uint32(len(inner)))
		c.dst = append(c.dst, inner...)
	}
}

func (c *coder) decodeTags(known []tag) {
	n := c.r.Uvarint()
	last := int64(-1)
	for ; n > 0 && c.err == nil && c.r.Ok(); n-- {
		number, size := c.r.Uvarint(), c.r.Uvarint()
		if int64(number) <= last {
			c.err = fmt.Errorf("tag %d is out of order", number)
			return
		}
		last = int64(number)
		if int64(size) > int64(len(c.r.Src)) {
			c.err = fmt.Errorf("tag %d is longer than the record", number)
			return
		}
		walk := c.find(known, number)
		if walk == nil {
			c.err = fmt.Errorf("tag %d is not known", number)
			return
		}
		rest := c.r.Src[size:]
		c.r.Src = c.r.Src[:size]
		walk()
		if c.r.Ok() && len(c.r.Src) != 0 {
			c.err = fmt.Errorf("tag %d has %d bytes left over", number, len(c.r.Src))
		}
		if c.r.Ok() {
			c.r.Src = rest
		}
	}
}

func (c *coder) find(known []tag, number uint32) func() {
	for i := range known {
		if known[i].number == number && c.version >= known[i].since {
			return known[i].walk
		}
	}
	return nil
}

func (c *coder) uvarint(v uint32) { c.dst = kbin.AppendUvarint(c.dst, v) }

func (c *coder) bool(v *bool) {
	if c.encoding {
		c.dst = kbin.AppendBool(c.dst, *v)
	} else {
		*v = c.r.Bool()
	}
}

func (c *coder) int8(v *int8) {
	if c.encoding {
		c.dst = kbin.AppendInt8(c.dst, *v)
	} else {
		*v = c.r.Int8()
	}
}

func (c *coder) int16(v *int16) {
	if c.encoding {
		c.dst = kbin.AppendInt16(c.dst, *v)
	} else {
		*v = c.r.Int16()
	}
}

func (c *coder) uint16(v *uint16) {
	if c.encoding {
		c.dst = kbin.AppendUint16(c.dst, *v)
	} else {
		*v = c.r.Uint16()
	}
}

func i32[T ~int32](c *coder, v *T) {
	if c.encoding {
		c.dst = kbin.AppendInt32(c.dst, int32(*v))
	} else {
		*v = T(c.r.Int32())
	}
}

func i64[T ~int64](c *coder, v *T) {
	if c.encoding {
		c.dst = kbin.AppendInt64(c.dst, int64(*v))
	} else {
		*v = T(c.r.Int64())
	}
}

func (c *coder) uuid(v *wire.UUID) {
	if c.encoding {
		c.dst = kbin.AppendUuid(c.dst, *v)
	} else {
		*v = c.r.Uuid()
	}
}

func (c *coder) string(v *string) {
	if c.encoding {
		c.dst = kbin.AppendCompactString(c.dst, *v)
	} else {
		*v = c.r.CompactString()
	}
}

func (c *coder) nullableString(v **string) {
	if c.encoding {
		c.dst = kbin.AppendCompactNullableString(c.dst, *v)
	} else {
		*v = c.r.CompactNullableString()
	}
}

// array walks a compact array; an empty one is decoded as nil. Every element takes at least one byte, so a count that
// the rest of the record cannot hold allocates nothing.
func array[T any](c *coder, v *[]T, each func(*T)) {
	if c.encoding {
		c.dst = kbin.AppendCompactArrayLen(c.dst, len(*v))
	} else {
		*v = makeArray[T](c)
	}
	for i := range *v {
		each(&(*v)[i])
	}
}

// nullableArray is array where nil stands for null and differs from empty.
func nullableArray[T any](c *coder, v *[]T, each func(*T)) {
	if c.encoding {
		c.dst = kbin.AppendCompactNullableArrayLen(c.dst, len(*v), *v == nil)
	} else {
		n := c.r.CompactArrayLen()
		*v = nil
		if n >= 0 && c.fits(n) {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		each(&(*v)[i])
	}
}

func makeArray[T any](c *coder) []T {
	n := c.r.CompactArrayLen()
	if n < 0 {
		c.err = errors.New("null array where none may be")
		return nil
	}
	if n == 0 || !c.fits(n) {
		return nil
	}
	return make([]T, n)
}

func (c *coder) fits(n int32) bool {
	if int64(n) > int64(len(c.r.Src)) {
		c.err = fmt.Errorf("array of %d elements in %d bytes", n, len(c.r.Src))
		return false
	}
	return true
}

func i32s[T ~int32](c *coder, v *[]T)         { array(c, v, func(e *T) { i32(c, e) }) }
func nullableI32s[T ~int32](c *coder, v *[]T) { nullableArray(c, v, func(e *T) { i32(c, e) }) }
func uuids(c *coder, v *[]wire.UUID)          { array(c, v, func(e *wire.UUID) { c.uuid(e) }) }
func nullableUUIDs(c *coder, v *[]wire.UUID)  { nullableArray(c, v, func(e *wire.UUID) { c.uuid(e) }) }
