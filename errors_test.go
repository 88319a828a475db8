package sundog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// kinds lists every kind with its number and name, as they are sent and printed.
var kinds = map[Kind]string{
	1: "invalid", 2: "not found", 3: "exists", 4: "conflict", 5: "too large", 6: "no space", 7: "locked",
	8: "denied", 9: "not owner", 10: "stale", 11: "unavailable", 12: "timeout", 13: "outcome unknown",
	14: "corrupt", 15: "closed", 16: "internal",
}

func TestKindNumbersAndNames(t *testing.T) {
	require.Equal(t, []Kind{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, []Kind{
		Invalid, NotFound, Exists, Conflict, TooLarge, NoSpace, Locked, Denied, NotOwner, Stale, Unavailable,
		Timeout, Unknown, Corrupt, Closed, Internal,
	})
	for k, name := range kinds {
		require.Equal(t, name, k.Error())
	}
	require.Equal(t, "kind 0", Kind(0).Error())
	require.Equal(t, "kind 17", Kind(17).Error())
	require.Equal(t, "kind 255", Kind(255).Error())
}

func TestKindsThroughErrorsIs(t *testing.T) {
	for k := range kinds {
		err := error(Errorf(k, "key %q", "a"))
		for _, e := range []error{err, fmt.Errorf("get: %w", err), errors.Join(io.EOF, err), fmt.Errorf("get: %w", error(k))} {
			for other := range kinds {
				require.Equal(t, k == other, errors.Is(e, other), "%v is %v", e, other)
			}
			require.Equal(t, k, KindOf(e))
			require.Equal(t, k, AsError(e).Kind)
		}
		require.Equal(t, k.Error()+`: key "a"`, err.Error())
		require.Equal(t, k.Error(), (&Error{Kind: k}).Error())
	}
}

func TestErrorKeepsItsCause(t *testing.T) {
	err := Errorf(Corrupt, "read %s: %w", "f", io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, Corrupt)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, "corrupt: read f: unexpected EOF", err.Error())
	require.NoError(t, Errorf(Corrupt, "read").Unwrap())

	inner := Errorf(NotFound, "pool %q", "p")
	outer := Errorf(Unavailable, "no answer: %w", inner)
	require.Equal(t, Unavailable, KindOf(outer), "the outermost kind counts")
	require.ErrorIs(t, outer, NotFound, "and the cause stays to be found")
}

func TestKindOfForeignErrors(t *testing.T) {
	require.Equal(t, Kind(0), KindOf(nil))
	require.Equal(t, Internal, KindOf(io.EOF))
	require.Equal(t, Timeout, KindOf(fmt.Errorf("dial: %w", context.DeadlineExceeded)))
	require.Equal(t, Closed, KindOf(fmt.Errorf("dial: %w", context.Canceled)))
}

func TestAsError(t *testing.T) {
	require.Nil(t, AsError(nil))
	e := &Error{Kind: NoSpace, Msg: "m", Used: 5, Limit: 4, Epoch: 3, Leader: 2}
	require.Same(t, e, AsError(fmt.Errorf("put: %w", e)))
	foreign := AsError(io.EOF)
	require.Equal(t, Internal, foreign.Kind)
	require.Equal(t, "EOF", foreign.Msg)
	require.ErrorIs(t, foreign, io.EOF)
}
