package rpc

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestOneSegmentAMessage asks the kernel how many segments with data the
// connection sent: a message in parts leaves as one. (A counting wrapper cannot
// see a vectored write.)
func TestOneSegmentAMessage(t *testing.T) {
	_, addr := startServer(t, ServerConfig{})
	c := dialTest(t, addr, DialConfig{})
	require.True(t, c.out.vectored)
	segments := func() (n uint32) {
		raw, err := c.nc.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			if err == nil {
				n = info.Data_segs_out
			}
		}))
		return n
	}
	before := segments()
	require.NotZero(t, before, "the handshake sent some")
	const n = 50
	large := make([]byte, copyMax+100) // by reference, and within one loopback segment
	for range n {
		_, err := c.Call(within(t, patient), MethodGet, 0, Body{[]byte("head"), large, []byte("tail")})
		require.NoError(t, err)
	}
	require.EqualValues(t, n, segments()-before)
}
