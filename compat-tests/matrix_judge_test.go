package compattests_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// history is what a client program has said in the steps that a node was killed in.
type history struct {
	acked    []int          // numbers of flow, in the order of the acknowledgements
	outcomes map[int]string // of each transaction: committed, aborted or unknown
}

// stored is a record as it lies in a partition.
type stored struct {
	partition int32
	value     string
}

const perTransaction = 3

// notAsked stands for the offset of the transactions' group where the client sends none.
const notAsked = -2

// judgeFlow says what is wrong with the records of the topic of flow, in the order of their offsets. Each acknowledged number is
// there: once if the client is idempotent, at least once otherwise; no other number is there twice; and an idempotent client's
// numbers are in order.
func judgeFlow(h history, records []stored, idempotent bool) (wrong []string) {
	times, last := map[int]int{}, map[int32]int{}
	for _, r := range records {
		n, err := strconv.Atoi(r.value)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%q is no number", r.value))
			continue
		}
		times[n]++
		if before, ok := last[r.partition]; ok && idempotent && n <= before {
			wrong = append(wrong, fmt.Sprintf("partition %d: %d after %d", r.partition, n, before))
		}
		last[r.partition] = n
	}
	for _, n := range h.acked {
		if times[n] == 0 {
			wrong = append(wrong, fmt.Sprintf("%d is acknowledged and lost", n))
		}
	}
	for n, t := range times {
		if t > 1 && idempotent {
			wrong = append(wrong, fmt.Sprintf("%d is there %d times", n, t))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// judgeTransactions says what is wrong with what a read_committed reader saw, and with the offset that the group of the
// transactions has in the end; -1 is none, notAsked is not looked at.
func judgeTransactions(h history, records []stored, offset int64) (wrong []string) {
	times := map[string]int{}
	for _, r := range records {
		times[r.value]++
	}
	newest := map[int64]bool{} // offsets that may be the last one
	for _, i := range sortedInts(h.outcomes) {
		there := 0
		for k := range perTransaction {
			value := fmt.Sprintf("%d/%d", i, k)
			switch n := times[value]; {
			case n > 1:
				wrong = append(wrong, fmt.Sprintf("%s is there %d times", value, n))
			case n == 1:
				there++
			}
			delete(times, value)
		}
		switch outcome := h.outcomes[i]; {
		case outcome == "committed" && there < perTransaction:
			wrong = append(wrong, fmt.Sprintf("transaction %d is committed, %d of its %d records are lost", i, perTransaction-there, perTransaction))
		case outcome == "aborted" && there > 0:
			wrong = append(wrong, fmt.Sprintf("transaction %d is aborted, %d of its records are read", i, there))
		case there > 0 && there < perTransaction:
			wrong = append(wrong, fmt.Sprintf("of transaction %d %d records of %d are read", i, there, perTransaction))
		}
		if there == perTransaction {
			clear(newest)
			newest[int64(i)+1] = true
		}
	}
	for value := range times {
		wrong = append(wrong, fmt.Sprintf("%q is read, and belongs to no transaction", value))
	}
	if offset != notAsked && len(newest) > 0 && !newest[offset] {
		wrong = append(wrong, fmt.Sprintf("the offset in the transactions' group is %d, want that of the last committed one, %v", offset, newest))
	}
	slices.Sort(wrong)
	return wrong
}

func sortedInts(m map[int]string) []int {
	var out []int
	for i := range m {
		out = append(out, i)
	}
	slices.Sort(out)
	return out
}

// record takes one line that a client printed in a step.
func (h *history) record(words []string) {
	switch words[0] {
	case "acked":
		for _, w := range words[1:] {
			if n, err := strconv.Atoi(w); err == nil {
				h.acked = append(h.acked, n)
			}
		}
	case "committed", "aborted", "unknown":
		if i, err := strconv.Atoi(words[1]); err == nil {
			h.outcomes[i] = words[0]
		}
	}
}

// The judges of the matrix find what they are there to find.
func TestMatrixJudgesFindFaults(t *testing.T) {
	in := func(partition int32, values ...string) (out []stored) {
		for _, v := range values {
			out = append(out, stored{partition, v})
		}
		return out
	}
	h := history{acked: []int{0, 1, 2, 3}, outcomes: map[int]string{0: "committed", 1: "aborted", 2: "unknown"}}
	for _, tt := range []struct {
		name       string
		records    []stored
		idempotent bool
		want       string
	}{
		{"nothing", append(in(0, "0", "2", "4"), in(1, "1", "3")...), true, ""},
		{"lost", in(0, "0", "1", "3"), false, "2 is acknowledged and lost"},
		{"doubled", append(in(0, "0", "2"), in(1, "1", "2", "3")...), true, "2 is there 2 times"},
		{"doubled by a client that sends again", append(in(0, "0", "2"), in(1, "1", "2", "3")...), false, ""},
		{"reordered", in(0, "0", "2", "1", "3"), true, "partition 0: 1 after 2"},
		{"garbage", in(0, "0", "1", "2", "3", "x"), true, `"x" is no number`},
	} {
		if got := strings.Join(judgeFlow(h, tt.records, tt.idempotent), "; "); got != tt.want {
			t.Errorf("flow, %s: %s", tt.name, cmp.Diff(tt.want, got))
		}
	}
	for _, tt := range []struct {
		name    string
		records []stored
		offset  int64
		want    string
	}{
		{"nothing, the unknown one aborted", in(0, "0/0", "0/1", "0/2"), 1, ""},
		{"nothing, the unknown one committed", in(0, "0/0", "0/1", "0/2", "2/0", "2/1", "2/2"), 3, ""},
		{"lost", in(0, "0/0", "0/2"), -1, "transaction 0 is committed, 1 of its 3 records are lost"},
		{"doubled", in(0, "0/0", "0/1", "0/1", "0/2"), 1, "0/1 is there 2 times; transaction 0 is committed, 1 of its 3 records are lost"},
		{"aborted and read", in(0, "0/0", "0/1", "0/2", "1/1"), 1, "transaction 1 is aborted, 1 of its records are read"},
		{"torn", in(0, "0/0", "0/1", "0/2", "2/1"), 1, "of transaction 2 1 records of 3 are read"},
		{"foreign", in(0, "0/0", "0/1", "0/2", "9/0"), 1, `"9/0" is read, and belongs to no transaction`},
		{"offset of the aborted one", in(0, "0/0", "0/1", "0/2"), 2, "the offset in the transactions' group is 2, want that of the last committed one, map[1:true]"},
	} {
		if got := strings.Join(judgeTransactions(h, tt.records, tt.offset), "; "); got != tt.want {
			t.Errorf("transactions, %s: %s", tt.name, cmp.Diff(tt.want, got))
		}
	}
}
