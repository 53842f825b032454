package sim

import (
	"errors"
	"math"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// gauge is a metric of the node without labels; false if it has none of that name.
func (n *Node) gauge(t *testing.T, name string) (float64, bool) {
	t.Helper()
	families, err := n.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue(), true
		}
	}
	return 0, false
}

// imageAge is how old the node's metric says that its image may be.
func (n *Node) imageAge(t *testing.T) time.Duration {
	t.Helper()
	v, ok := n.gauge(t, "kaja_broker_metadata_age_seconds")
	if !ok {
		t.Fatalf("%s tells no age of its image", n.Name())
	}
	return time.Duration(math.Round(v * float64(time.Second)))
}

// aged is what a node's log says of its image: an age while no controller is heard, 0 when one is heard again.
type aged struct {
	node string
	at   time.Time
	age  time.Duration
}

var agedLine = regexp.MustCompile(`(?m)^time=(\S+) level=(?:WARN msg="no controller is heard: this node works with the last metadata that it has" node=(\S+) age=(\S+)|INFO msg="a controller is heard again" node=(\S+))$`)

func (c *Cluster) agedLines(t *testing.T) []aged {
	t.Helper()
	var out []aged
	for _, m := range agedLine.FindAllStringSubmatch(c.Log.String(), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			t.Fatal(err)
		}
		a := aged{node: m[2] + m[4], at: at}
		if m[3] != "" {
			if a.age, err = time.ParseDuration(m[3]); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, a)
	}
	return out
}

// A node that is cut off from the others answers from its last image. Its metric says how old that may be, to the nanosecond
// since it last heard of a controller, and so does a line in its log every ten seconds; when it hears of one again a line says
// so once, and it knows what it has missed. The other nodes say nothing.
func TestAgeOfTheImageOfANodeThatIsCutOff(t *testing.T) {
	for _, who := range []string{"one that follows", "the controller"} {
		t.Run(who, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) { cutOffAges(t, seed, who == "the controller") })
		})
	}
}

func cutOffAges(t *testing.T, seed uint64, leads bool) {
	c, nodes, cl := threeBrokers(t, seed)
	if got := at(t, cl, 1, create("before", 1)).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Fatal(kerr.ErrorForCode(got.ErrorCode))
	}
	time.Sleep(5 * time.Second)
	id := 1 + slices.IndexFunc(nodes, func(n *Node) bool { return n.controller().Leading() == leads })
	old, other := nodes[id-1], id%3+1
	if age := old.imageAge(t); leads != (age == 0) || age > time.Second {
		t.Errorf("the image of a node that is cut off from nobody is %v old", age)
	}
	topic := func(name string) error {
		return kerr.ErrorForCode(at(t, cl, id, metadataOf(name)).(*kmsg.MetadataResponse).Topics[0].ErrorCode)
	}

	cut := time.Now()
	for _, n := range nodes {
		if n != old {
			c.Net.Cut(old.Name(), n.Name())
			c.Net.Cut(n.Name(), old.Name())
		}
	}
	time.Sleep(5 * time.Second) // the controller has noticed that it is none, and what was under way has arrived
	heard := time.Now().Add(-old.imageAge(t))
	if d := heard.Sub(cut); d < -time.Second || d > 2*time.Second {
		t.Errorf("the cut-off node claims to have heard of a controller %v after the cut", d)
	}
	if got := at(t, cl, other, create("after", 1)).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Fatal(kerr.ErrorForCode(got.ErrorCode))
	}
	for i := range 9 {
		time.Sleep(time.Duration(i)*time.Second + 123456789*time.Nanosecond)
		if age := old.imageAge(t); age != time.Since(heard) {
			t.Errorf("%v after it has heard of a controller, the image of the cut-off node is said to be %v old", time.Since(heard), age)
		}
		if before, after := topic("before"), topic("after"); before != nil || !errors.Is(after, kerr.UnknownTopicOrPartition) {
			t.Errorf("the cut-off node knows of the topic from before the cut: %v, from after it: %v", before, after)
		}
		for _, n := range nodes {
			if age := n.imageAge(t); n != old && (age > time.Second || n.controller().Leading() != (age == 0)) {
				t.Errorf("the image of %s is said to be %v old", n.Name(), age)
			}
		}
	}
	said := c.agedLines(t)
	if len(said) == 0 {
		t.Fatal("the cut-off node says nothing")
	}
	for i, line := range said {
		off := line.age - line.at.Sub(heard)
		if line.node != old.Name() || off.Abs() > 501*time.Millisecond { // it is told in whole seconds, the time in milliseconds
			t.Errorf("%v after %s has heard of a controller, %s says that its image is %v old", line.at.Sub(heard), old.Name(), line.node, line.age)
		}
		if i > 0 && line.age != said[i-1].age+10*time.Second {
			t.Errorf("it says %v after %v", line.age, said[i-1].age)
		}
	}
	if first, last := said[0].age, time.Since(said[len(said)-1].at); first < 10*time.Second || first > 20*time.Second || last > 10*time.Second {
		t.Errorf("it says first that the image is %v old, and has last said so %v ago", first, last)
	}

	c.Net.Rejoin(old.Name())
	time.Sleep(20 * time.Second)
	if age := old.imageAge(t); age > time.Second {
		t.Errorf("with the network whole the image is said to be %v old", age)
	}
	if err := topic("after"); err != nil {
		t.Errorf("what it has missed: %v", err)
	}
	if rest := c.agedLines(t)[len(said):]; len(rest) != 1 || rest[0].node != old.Name() || rest[0].age != 0 {
		t.Errorf("with the network whole it says %+v", rest)
	}
}
