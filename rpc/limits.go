package rpc

import "time"

// Limits bound what a peer can cost. A zero field takes its default.
type Limits struct {
	// MaxFrame is the largest frame in bytes after its length word, in either
	// direction; checked before any memory is taken for it. 4 MiB + 64 KiB: one
	// value of the largest size, or a fair batch of smaller ones, with headers.
	MaxFrame int
	// MaxInflight is the number of requests of one connection that are served
	// or whose answers wait to be written. Beyond it the server stops reading
	// that connection. 1,024.
	MaxInflight int
	// MaxInflightBytes is the same bound for the bytes of those requests and
	// answers; one message is always let through. 64 MiB.
	MaxInflightBytes int64
	// MaxConns is the number of connections of a server; one more is told
	// Unavailable and closed. 10,000.
	MaxConns int
	// Handshake is how long a connection may take to shake hands. 5 s.
	Handshake time.Duration
	// Idle is how long a server keeps a connection that sends nothing, and a
	// dialler one that carries no call. 5 min.
	Idle time.Duration
	// KeepAlive is how long a dialler hears nothing before it pings; after as
	// long again without a byte the connection is given up. 30 s.
	KeepAlive time.Duration
	// Probe replaces KeepAlive for the answer to a ping that is sent because a
	// call got no answer. 2 s.
	Probe time.Duration
	// Stall is how long a peer may leave a frame half sent, or take no byte of
	// what is written to it. 20 s.
	Stall time.Duration
}

// WithDefaults fills what is zero.
func (l Limits) WithDefaults() Limits {
	orInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	orInt(&l.MaxFrame, 4<<20+64<<10)
	orInt(&l.MaxInflight, 1024)
	if l.MaxInflightBytes <= 0 {
		l.MaxInflightBytes = 64 << 20
	}
	orInt(&l.MaxConns, 10_000)
	orTime(&l.Handshake, 5*time.Second)
	orTime(&l.Idle, 5*time.Minute)
	orTime(&l.KeepAlive, 30*time.Second)
	orTime(&l.Probe, 2*time.Second)
	orTime(&l.Stall, 20*time.Second)
	return l
}
