package node

import (
	"context"
	"errors"
	"net"
	"syscall"

	"github.com/hashicorp/go-sockaddr"

	"github.com/sundog-kv/sundog"
)

// listen binds a TCP port. A port that is taken is a Conflict that names the
// address and the flag to change.
func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		return l, nil
	}
	return nil, bindError(flag, addr, err)
}

func bindError(flag, addr string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, errAddrInUseWindows):
		return sundog.Errorf(sundog.Conflict, "%s %s: another process has this port: choose another with %s HOST:PORT, or port 0 for any", flag, addr, flag)
	case errors.Is(err, syscall.EACCES):
		return sundog.Errorf(sundog.Denied, "%s %s: the system does not allow this port: choose one above 1023 with %s HOST:PORT", flag, addr, flag)
	}
	return sundog.Errorf(sundog.Invalid, "%s %s: %w", flag, addr, err)
}

// errAddrInUseWindows is WSAEADDRINUSE, which Windows does not map to EADDRINUSE.
const errAddrInUseWindows = syscall.Errno(10048)

// advertised is the address that others reach a bound port by: the host asked
// for, else the bound one, else (bound to every interface) the first private
// address of the machine, else loopback.
func advertised(advertise string, bound net.Addr) string {
	host, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return bound.String()
	}
	if advertise != "" {
		return net.JoinHostPort(advertise, port)
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return net.JoinHostPort(host, port)
	}
	if private, err := sockaddr.GetPrivateIP(); err == nil && private != "" {
		return net.JoinHostPort(private, port)
	}
	return net.JoinHostPort("127.0.0.1", port)
}
