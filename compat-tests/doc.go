// Package compattests drives real clients and Kafka's own tools against a running broker, and a real Kafka 4.4 beside it
// where answers are compared.
//
// # The client matrix
//
// A client of the matrix (matrix_table_test.go) is a program with one command line,
//
//	PROGRAM ADDRESSES NAME REPLICAS STEP...
//
// which does the steps in order. NAME begins the names of its topics, groups and transactional id; the topics NAME-flow, NAME-txn, NAME-in
// and NAME-group are there. Steps that go on until told end when a line arrives on standard input.
//
//	admin              what the client's admin has, creation of the topic NAME with REPLICAS replicas included
//	codecs             100 records with key and header in each codec to NAME, and all of them read again
//	flow               until told: numbers from 0 on to NAME-flow, 20 at a time, idempotent where the client can be
//	txn                until told: transactions i = 0, 1, … with the values i/0, i/1, i/2 to NAME-txn, and offset i+1 of NAME-flow's
//	                   partition 0 for the group NAME-txn-g; even ones are committed, odd ones aborted. A client that takes only
//	                   offsets of what it has read reads NAME-in instead, to which it sends first
//	group:MODE         until told: two members of the group NAME-MODE read NAME-group from the start, and commit;
//	                   MODE is eager, cooperative or static
//	end                what is left of the admin; NAME is deleted
//
// One line is printed for each thing that happened:
//
//	step STEP                               a step begins
//	ok WHAT, FAILED WHAT DETAIL             a check
//	acked N...                              these numbers are acknowledged
//	committed I, aborted I, unknown I       how transaction i ended; unknown: the client was told an error
//	read MEMBER VALUE                       a member has read a value
//	N passed, N failed                      the last line
package compattests
