// Package scenario is what the Go programs of the client matrix share. The command line and the lines that are printed:
// compat-tests/doc.go.
package scenario

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Run is one run of a program.
type Run struct {
	Addresses []string
	Name      string
	Replicas  int
	steps     []string
	told      chan struct{}
	mu        sync.Mutex
	passed    int
	failed    int
}

// Client is what a client can do. A step that it lacks is not in its list of steps in the table.
type Client interface {
	// Admin makes the topic Name and tries the admin.
	Admin(r *Run) error
	// Codecs sends and reads with each codec.
	Codecs(r *Run) error
	// Sender gives a function that sends values to a topic, idempotent where the client can be, and returns when all are acknowledged.
	Sender(r *Run, topic string) (send func(values []string) error, end func() error, err error)
	// Transactions gives a producer of transactions.
	Transactions(r *Run) (Transactions, error)
	// Member reads the topic of groups as a member of Name-mode until stop is closed, commits, and leaves.
	Member(r *Run, mode string, member int, read func(value string), stop <-chan struct{}) error
	// End tries what is left of the admin, and deletes the topic Name.
	End(r *Run) error
}

// Transactions makes one transaction after the other.
type Transactions interface {
	// Attempt sends values and the offset for Name-txn-g, and commits or aborts. On an error the outcome is unknown, and the next
	// Attempt begins with another producer.
	Attempt(values []string, offset int64, commit bool) error
	Close() error
}

// Main runs a client as the command line says, and ends the process.
func Main(c Client) {
	replicas, err := strconv.Atoi(os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	r := &Run{Addresses: strings.Split(os.Args[1], ","), Name: os.Args[2], Replicas: replicas, steps: os.Args[4:], told: make(chan struct{})}
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			r.told <- struct{}{}
		}
	}()
	for _, step := range r.steps {
		r.say("step " + step)
		if err := r.step(c, step); err != nil {
			r.Check(step, false, err)
			break
		}
	}
	fmt.Printf("%d passed, %d failed\n", r.passed, r.failed)
	os.Exit(min(r.failed, 1))
}

func (r *Run) step(c Client, step string) error {
	switch kind, mode, _ := strings.Cut(step, ":"); kind {
	case "admin":
		return c.Admin(r)
	case "codecs":
		return c.Codecs(r)
	case "flow":
		return r.flow(c)
	case "txn":
		return r.txn(c)
	case "group":
		return r.group(c, mode)
	case "end":
		return c.End(r)
	}
	return fmt.Errorf("unknown step %q", step)
}

func (r *Run) say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Println(line)
}

// Check prints whether something is as it should be.
func (r *Run) Check(what string, ok bool, detail any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ok {
		r.passed++
		fmt.Println("ok", what)
		return
	}
	r.failed++
	fmt.Println("FAILED", what, detail)
}

// Until asks again until ready says so: Kafka answers before a change can be seen.
func Until(ready func() bool) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		if ready() {
			return true
		}
	}
	return ready()
}

func (r *Run) over() bool {
	select {
	case <-r.told:
		return true
	default:
		return false
	}
}

func (r *Run) flow(c Client) error {
	send, end, err := c.Sender(r, r.Name+"-flow")
	if err != nil {
		return err
	}
	for n := 0; !r.over(); n += 20 {
		values := make([]string, 20)
		for i := range values {
			values[i] = strconv.Itoa(n + i)
		}
		if err := send(values); err != nil {
			return err
		}
		r.say("acked " + strings.Join(values, " "))
	}
	return end()
}

func (r *Run) txn(c Client) error {
	transactions, err := c.Transactions(r)
	if err != nil {
		return err
	}
	for i := 0; !r.over(); i++ {
		values := []string{fmt.Sprintf("%d/0", i), fmt.Sprintf("%d/1", i), fmt.Sprintf("%d/2", i)}
		outcome := "committed"
		if i%2 == 1 {
			outcome = "aborted"
		}
		if err := transactions.Attempt(values, int64(i)+1, i%2 == 0); err != nil {
			r.say(fmt.Sprintf("unknown %d %v", i, err))
			continue
		}
		r.say(fmt.Sprintf("%s %d", outcome, i))
	}
	return transactions.Close()
}

func (r *Run) group(c Client, mode string) error {
	stop := make(chan struct{})
	var members sync.WaitGroup
	for i := range 2 {
		members.Go(func() {
			err := c.Member(r, mode, i, func(value string) { r.say(fmt.Sprintf("read %d %s", i, value)) }, stop)
			r.Check("member commits and leaves", err == nil, err)
		})
	}
	<-r.told
	close(stop)
	members.Wait()
	return nil
}
