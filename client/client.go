package client

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/ring"
	"github.com/sundog-kv/sundog/rpc"
)

// Client is a connection to one cluster. It is safe for concurrent use.
type Client struct {
	opts  Options
	seeds []string // as given to Dial
	log   *slog.Logger
	conns *rpc.Pool
	view  atomic.Pointer[ring.View] // nil until the first map came

	refresher refresher
	health    health
	counters  counters

	life context.Context // ends with Close; parent of the refresh goroutine
	end  context.CancelFunc
	done <-chan struct{} // life's

	mu     sync.RWMutex // guards shut, against calls being added
	shut   bool
	calls  sync.WaitGroup // calls and refreshes under way
	finish sync.Once
}

// Dial connects to the cluster that any of addrs (host:port of nodes; dead ones
// do no harm) belongs to. It waits for the first answer until ctx ends, or
// [Options.Timeout] where ctx has no deadline; then the error is of kind
// Unavailable and says what each address answered. With [Options.Lazy] it
// returns at once. An address without a port, or no address, is Invalid.
//
// The client outlives ctx; Close ends it.
func Dial(ctx context.Context, addrs []string, opts Options) (*Client, error) {
	seeds, err := checkAddrs(addrs)
	if err != nil {
		return nil, err
	}
	if opts.Timeout == 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.Timeout < 0 {
		return nil, sundog.Errorf(sundog.Invalid, "timeout %v: use a positive one", opts.Timeout)
	}
	c := &Client{opts: opts, seeds: seeds, log: opts.Logger}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.conns = rpc.NewPool(rpc.DialConfig{Cluster: opts.Cluster, Dial: c.dial, Logger: c.log})
	c.life, c.end = context.WithCancel(context.WithoutCancel(ctx))
	c.done = c.life.Done()
	if opts.Lazy {
		return c, nil
	}
	ctx, leave, err := c.enter(ctx)
	if err == nil {
		err = c.await(ctx)
		leave()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func checkAddrs(addrs []string) ([]string, error) {
	var out []string
	for _, a := range addrs {
		a = strings.TrimSpace(a)
		if a == "" || slices.Contains(out, a) {
			continue
		}
		_, port, err := net.SplitHostPort(a)
		if err != nil || port == "" {
			return nil, sundog.Errorf(sundog.Invalid, "address %q: want host:port", a)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, sundog.Errorf(sundog.Invalid, "address %q: the port is a number from 1 to 65535", a)
		}
		out = append(out, a)
	}
	if len(out) == 0 {
		return nil, sundog.Errorf(sundog.Invalid, "no address: name at least one node as host:port")
	}
	return out, nil
}

// Close ends the client: calls under way return with [sundog.Closed], or with
// Unknown (which then also matches Closed) where a mutation was sent already.
// When Close returns, no goroutine of the client is left. Closing again does
// nothing.
func (c *Client) Close() error {
	var err error
	c.finish.Do(func() {
		c.mu.Lock()
		c.shut = true
		c.mu.Unlock()
		c.end()
		err = c.conns.Close()
	})
	c.calls.Wait()
	return err
}

// Stats returns the counts since Dial.
func (c *Client) Stats() Stats { return c.counters.stats() }

// enter begins a call: it counts it for Close and gives it a deadline. leave
// must be called when it returns.
func (c *Client) enter(ctx context.Context) (_ context.Context, leave func(), _ error) {
	if !c.hold() {
		return nil, nil, sundog.Errorf(sundog.Closed, "client is closed")
	}
	if _, ok := ctx.Deadline(); ok {
		return ctx, c.calls.Done, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	return ctx, func() { cancel(); c.calls.Done() }, nil
}

// hold keeps Close waiting until calls.Done; false when the client is closed.
func (c *Client) hold() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.shut {
		return false
	}
	c.calls.Add(1)
	return true
}

func (c *Client) closed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// dial opens a TCP connection and counts it.
func (c *Client) dial(ctx context.Context, addr string) (net.Conn, error) {
	c.counters.dials.Add(1)
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

// epoch is that of the view, 0 before the first.
func (c *Client) epoch() sundog.Epoch {
	if v := c.view.Load(); v != nil {
		return v.Epoch()
	}
	return 0
}

// await returns once there is a view, or the error that the call ends with.
func (c *Client) await(ctx context.Context) error {
	var t tries
	for c.view.Load() == nil {
		err := c.refresh(ctx)
		if err == nil {
			continue
		}
		t.sent++
		if c.over(ctx) || !c.pause(ctx, &t) {
			return c.ended(ctx, t.sent, sundog.AsError(err))
		}
	}
	return nil
}
