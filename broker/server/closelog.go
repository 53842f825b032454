package server

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// closeKind is why a connection was closed; a label of kaja_server_connections_closed_total.
type closeKind uint8

const (
	closePeer closeKind = iota
	closeShutdown
	closeIdle
	closeFirstRequest
	closeFrameSize
	closeHeader
	closeUnknownAPI
	closeUnsupportedVersion
	closeMalformed
	closeOverBudget
	closeSlowFrame
	closeSlowReader
	closeDropped
	closeIO
	closePerIP
	closeDescriptors
	closeHandshake
	closeNotReady
	closeTLS
	closeHandedOver // the connection goes on in other hands
	closeKinds
)

// closeTexts holds the label of each kind and what the log says of it. An empty text: ordinary, logged at debug level.
var closeTexts = [closeKinds]struct{ label, text string }{
	closePeer:               {"peer", ""},
	closeShutdown:           {"shutdown", ""},
	closeIdle:               {"idle", ""},
	closeFirstRequest:       {"first_request", "no complete request in time"},
	closeFrameSize:          {"frame_size", "frame size out of range"},
	closeHeader:             {"header", "malformed request header"},
	closeUnknownAPI:         {"unknown_api", "API key not served on this listener"},
	closeUnsupportedVersion: {"unsupported_version", "API version not supported"},
	closeMalformed:          {"malformed", "malformed request"},
	closeOverBudget:         {"over_budget", "request exceeds the memory budget"},
	closeSlowFrame:          {"slow_frame", "incomplete request while memory is short"},
	closeSlowReader:         {"slow_reader", "client does not read its answers"},
	closeDropped:            {"dropped", "request failed and can not be answered"},
	closeIO:                 {"io", "answer could not be sent"},
	closePerIP:              {"per_ip", "too many from this address"},
	closeDescriptors:        {"descriptors", "descriptors run short, the rest is for files"},
	closeHandshake:          {"handshake", "somebody did not prove to be a node of this cluster"},
	closeNotReady:           {"not_ready", ""},
	closeTLS:                {"tls", "TLS handshake failed"},
	closeHandedOver:         {"handed_over", ""},
}

// closeLogPeriod is how often a kind of close is logged at most.
const closeLogPeriod = time.Second

// closeLog writes at most one line a second for each kind of close and says how many it left out. Safe for concurrent
// use.
type closeLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	kinds  [closeKinds]struct {
		last       time.Time
		suppressed int
	}
}

func (l *closeLog) log(kind closeKind, now time.Time, attrs ...slog.Attr) {
	text := closeTexts[kind].text
	if text == "" {
		l.logger.LogAttrs(context.Background(), slog.LevelDebug, "connection closed",
			append(attrs, slog.String("reason", closeTexts[kind].label))...)
		return
	}
	attrs = append([]slog.Attr{slog.String("reason", text)}, attrs...)
	l.mu.Lock()
	k := &l.kinds[kind]
	if !k.last.IsZero() && now.Sub(k.last) < closeLogPeriod {
		k.suppressed++
		l.mu.Unlock()
		return
	}
	suppressed := k.suppressed
	k.last, k.suppressed = now, 0
	l.mu.Unlock()
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	l.logger.LogAttrs(context.Background(), slog.LevelWarn, "connection closed", attrs...)
}
