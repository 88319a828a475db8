package client

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
)

// freezer stands before a node and can stop passing bytes on, which looks like a
// stopped process: connections are taken, and nothing ever comes back.
type freezer struct {
	listener net.Listener
	to       string
	work     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	frozen chan struct{}
	conns  []net.Conn
}

func newFreezer(t *testing.T, to string) *freezer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &freezer{listener: l, to: to}
	f.work.Go(f.accept)
	t.Cleanup(func() {
		_ = l.Close()
		f.thaw()
		f.mu.Lock()
		for _, c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.work.Wait()
	})
	return f
}

func (f *freezer) addr() string { return f.listener.Addr().String() }

func (f *freezer) accept() {
	for {
		in, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, in)
		f.mu.Unlock()
		f.work.Go(func() {
			defer in.Close()
			f.wait()
			out, err := net.Dial("tcp", f.to)
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, out)
			f.mu.Unlock()
			defer out.Close()
			f.work.Go(func() { f.pass(in, out); _ = in.Close() })
			f.pass(out, in)
		})
	}
}

func (f *freezer) pass(to, from net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		f.wait()
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				_ = to.Close()
			}
			return
		}
	}
}

func (f *freezer) wait() {
	f.mu.Lock()
	frozen := f.frozen
	f.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frozen = make(chan struct{})
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen != nil {
		close(f.frozen)
		f.frozen = nil
	}
}

// A node that is stopped, not dead, shows by nothing. It is found out by a ping:
// what waits on it ends long before its deadline, and later calls pass it over.
func TestStoppedNodeIsFoundOut(t *testing.T) {
	c := newCluster(t, 3, 8)
	f := newFreezer(t, c.nodes[0].addr)
	c.change(func(m *ring.Map) { m.Nodes[0].Listen = f.addr() })
	cl, err := Dial(t.Context(), c.addrs()[1:], Options{Timeout: time.Minute})
	require.NoError(t, err)
	defer cl.Close()
	p, err := cl.Pool(t.Context(), "p")
	require.NoError(t, err)
	key := []byte(c.keyLedBy(c.nodes[0]))
	_, err = p.Put(t.Context(), key, []byte("before"))
	require.NoError(t, err)

	f.freeze()
	read := make(chan error, 1)
	go func() { _, err := p.Get(t.Context(), key); read <- err }()
	_, err = p.Put(t.Context(), key, []byte("during"))
	requireKind(t, sundog.Unknown, err)
	c.lead(c.partition(string(key)), c.nodes[1])
	require.NoError(t, <-read, "a read goes elsewhere by itself")

	// Nobody waits for the stopped node any more.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lost := cl.Stats().Unknowns
	for range 100 {
		_, err = p.Put(ctx, key, []byte("after"))
		require.NoError(t, err)
	}
	require.Equal(t, lost, cl.Stats().Unknowns)

	f.thaw()
	c.lead(c.partition(string(key)), c.nodes[0])
	require.Eventually(t, func() bool {
		it, err := p.Get(t.Context(), key)
		return err == nil && it.Node == c.nodes[0].id
	}, 20*time.Second, 20*time.Millisecond)
}
