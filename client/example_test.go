package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// docs/client.md shows this file's functions; TestManualShowsTheExamples compares.

// dial connects. One living address is enough; name a few.
func dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, []string{"127.0.0.1:7400", "127.0.0.1:7410"}, client.Options{
		Timeout: 2 * time.Second, // of a call whose context has no deadline; 0 is 5 s
		Lazy:    false,           // true: return at once, the first call waits for the cluster
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
}

// program makes a pool where there is none, and stores and reads a key.
func program(ctx context.Context) error {
	c, err := dial(ctx)
	if err != nil {
		return err // of kind Unavailable: says what each address answered
	}
	defer c.Close()

	_, err = c.CreatePool(ctx, "books", sundog.PoolSpec{Consistency: sundog.Strong})
	if err != nil && !errors.Is(err, sundog.Exists) {
		return err
	}
	books, err := c.Pool(ctx, "books") // safe for concurrent use; keep it
	if err != nil {
		return err
	}
	version, err := books.Put(ctx, []byte("dune"), []byte("Frank Herbert"))
	if err != nil {
		return err
	}
	item, err := books.Get(ctx, []byte("dune"))
	if err != nil {
		return err
	}
	fmt.Println(string(item.Value), item.Version == version)
	return nil
}

// rename replaces a value only where nobody else has since it was read.
func rename(ctx context.Context, books *client.Pool, key, value []byte) error {
	for {
		item, err := books.Get(ctx, key)
		if err != nil {
			return err
		}
		_, err = books.Put(ctx, key, value, client.IfVersion(item.Version))
		if !errors.Is(err, sundog.Conflict) {
			return err
		}
	}
}

// claim stores a key for a minute, unless it exists.
func claim(ctx context.Context, books *client.Pool, key, who []byte) (mine bool, err error) {
	_, err = books.Put(ctx, key, who, client.IfAbsent(), client.TTL(time.Minute))
	if errors.Is(err, sundog.Exists) {
		return false, nil
	}
	return err == nil, err
}

// store says what each kind of error asks for.
func store(ctx context.Context, books *client.Pool, key, value []byte) error {
	_, err := books.Put(ctx, key, value)
	switch sundog.KindOf(err) {
	case 0:
		return nil // done: on the disks of a majority
	case sundog.Unknown:
		// It was sent, and no answer came: it may be done, or be done yet. Only a
		// read tells, and only if nobody else writes the key.
		item, read := books.Get(ctx, key)
		if read == nil && string(item.Value) == string(value) {
			return nil
		}
		return err
	case sundog.Unavailable, sundog.Timeout:
		return err // surely not done: may be tried again, later
	case sundog.TooLarge, sundog.NoSpace:
		full := sundog.AsError(err)
		return fmt.Errorf("%d bytes where %d are allowed: %w", full.Used, full.Limit, err)
	case sundog.NotFound:
		return err // the pool was deleted
	default:
		return err // surely not done, and no better by itself: Invalid, Denied, ...
	}
}

// many stores, reads and removes several keys, each with an outcome of its own.
func many(ctx context.Context, books *client.Pool) error {
	pairs := []client.Pair{
		{Key: []byte("a"), Value: []byte("1")},
		{Key: []byte("b"), Value: []byte("2")},
	}
	for i, r := range books.MultiPut(ctx, pairs) {
		if r.Err != nil {
			return fmt.Errorf("put %q: %w", pairs[i].Key, r.Err)
		}
	}
	keys := [][]byte{[]byte("a"), []byte("b"), []byte("none")}
	for i, r := range books.MultiGet(ctx, keys) {
		switch {
		case errors.Is(r.Err, sundog.NotFound):
			fmt.Printf("%s is not there\n", keys[i])
		case r.Err != nil:
			return fmt.Errorf("get %q: %w", keys[i], r.Err)
		default:
			fmt.Printf("%s = %s\n", keys[i], r.Item.Value)
		}
	}
	for i, r := range books.MultiDelete(ctx, keys) {
		if r.Err != nil && !errors.Is(r.Err, sundog.NotFound) {
			return fmt.Errorf("delete %q: %w", keys[i], r.Err)
		}
	}
	return nil
}

// walk lists all keys that begin with a prefix, in no order.
func walk(ctx context.Context, books *client.Pool) error {
	for item, err := range books.Scan(ctx, client.ScanOptions{Prefix: []byte("d"), KeysOnly: true}) {
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", item.Key)
	}
	return nil
}
