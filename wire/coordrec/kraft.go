package coordrec

import (
	"errors"
	"fmt"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kbin"
)

// KRaftVoter is one voter of a KRaftVoters control record (Kafka: VotersRecord, KIP-853).
type KRaftVoter struct {
	ID          wire.BrokerID
	DirectoryID wire.UUID
	Endpoints   []KRaftEndpoint
}

// KRaftEndpoint is one controller listener of a voter.
type KRaftEndpoint struct {
	Name, Host string
	Port       uint16
}

// ParseKRaftVoters reads the value of a control record of type 6, version 0. Errors wrap ErrMalformedRecord.
func ParseKRaftVoters(value []byte) ([]KRaftVoter, error) {
	c := coder{r: kbin.Reader{Src: value}}
	var version, lowest, highest int16
	var voters []KRaftVoter
	c.int16(&version)
	array(&c, &voters, func(v *KRaftVoter) {
		i32(&c, &v.ID)
		c.uuid(&v.DirectoryID)
		array(&c, &v.Endpoints, func(e *KRaftEndpoint) {
			c.string(&e.Name)
			c.string(&e.Host)
			c.uint16(&e.Port)
			c.tags()
		})
		c.int16(&lowest) // kraft.version that the voter supports
		c.int16(&highest)
		c.tags()
		c.tags()
	})
	c.tags()
	switch {
	case c.err != nil:
		return nil, fmt.Errorf("%w: voters: %w", ErrMalformedRecord, c.err)
	case !c.r.Ok() || len(c.r.Src) > 0 || version != 0:
		return nil, fmt.Errorf("%w: voters: %w", ErrMalformedRecord, errors.New("not as version 0 has them"))
	}
	return voters, nil
}
