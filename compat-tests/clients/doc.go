// Package clients holds the tests of foreign Go clients, sarama and segmentio's kafka-go, against a broker process. It is a
// module of its own, so that kaja's go.mod does not name them. The broker is started by the harness of compat-tests.
package clients
