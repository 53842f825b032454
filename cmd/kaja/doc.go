// Command kaja is an Apache-Kafka-compatible broker.
//
// "kaja start" runs a broker until it is told to stop: SIGTERM, SIGINT or SIGHUP stop it cleanly, a second one at once;
// SIGQUIT writes the stacks of all goroutines and goes on. "kaja version" says what is running.
//
// Exit codes: 0 after a clean stop, 1 if the node could not start or ended with an error, 2 for a wrong command line.
// What a person should read goes to standard error but for the start screen and the output that was asked for, which
// go to standard output.
//
// The package holds the command line and the process; everything else is package broker's.
package main
