//go:build linux

package raftgroup

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/sundog-kv/sundog"
)

// A node in a process of its own, for what a process of three nodes hides: how
// often the kernel must wake it.
const (
	idleChildEnv = "SUNDOG_IDLE_CHILD" // "id dir addr1 addr2 addr3"
	idleGroups   = 32
)

func idleLanes() []string { return []string{LaneBulk, LaneUrgent, LaneSnapshot} }

// idleChild runs a node until it is killed.
func idleChild(spec string) error {
	f := strings.Fields(spec)
	n, err := strconv.Atoi(f[0])
	if err != nil {
		return err
	}
	id, dir, addrs := sundog.NodeID(n), f[1], f[2:]
	store, err := OpenStore(filepath.Join(dir, "raft.db"), StoreConfig{})
	if err != nil {
		return err
	}
	mux := NewMux(MuxConfig{Self: id, Dial: func(ctx context.Context, to sundog.NodeID, lane string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addrs[to-1])
		if err != nil {
			return nil, err
		}
		hello := binary.LittleEndian.AppendUint64(nil, uint64(id))
		for i, name := range idleLanes() {
			if name == lane {
				hello = append(hello, byte(i))
			}
		}
		_, err = c.Write(hello)
		return c, err
	}})
	ln, err := net.Listen("tcp", addrs[id-1])
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			hello := make([]byte, 9)
			if _, err := io.ReadFull(c, hello); err != nil || mux.Accept(c, sundog.NodeID(binary.LittleEndian.Uint64(hello)), idleLanes()[hello[8]]) != nil {
				_ = c.Close()
			}
		}
	}()
	var members []string
	for i := range addrs {
		members = append(members, serverID(sundog.NodeID(i+1), 1))
	}
	for g := range GroupID(idleGroups) {
		group, err := Open(Config{
			ID: g, Self: serverID(id, 1), Store: store, Mux: mux, SnapshotDir: dir, Machine: newLedger(),
			Clock: func() sundog.Clock { return sundog.ClockAt(time.Now()) },
		})
		if err != nil {
			return err
		}
		if err := group.Bootstrap(members); err != nil {
			return err
		}
	}
	if file := os.Getenv("SUNDOG_IDLE_PROFILE"); file != "" {
		out, err := os.Create(file + f[0])
		if err != nil {
			return err
		}
		time.Sleep(3 * time.Second)
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		time.Sleep(6 * time.Second)
		pprof.StopCPUProfile()
	}
	select {}
}

// BenchmarkIdleProcesses measures the processor time of 32 idle groups, each
// node being a process: the mean share of one core.
func BenchmarkIdleProcesses(b *testing.B) {
	var addrs []string
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(b, err)
		addrs = append(addrs, ln.Addr().String())
		require.NoError(b, ln.Close())
	}
	var pids []int
	for i := range addrs {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", idleChildEnv, i+1, b.TempDir(), strings.Join(addrs, " ")))
		child.Stderr = os.Stderr
		require.NoError(b, child.Start())
		pids = append(pids, child.Process.Pid)
		defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	}
	time.Sleep(4 * time.Second)
	const span = 5 * time.Second
	before := ticksOf(b, pids)
	time.Sleep(span)
	ticks := ticksOf(b, pids) - before
	b.ReportMetric(float64(ticks)/span.Seconds()/3, "%core/node") // 100 ticks a second
}

func ticksOf(b *testing.B, pids []int) (ticks int) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(b, err)
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		for _, s := range f[11:13] {
			n, err := strconv.Atoi(s)
			require.NoError(b, err)
			ticks += n
		}
	}
	return ticks
}
