package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
)

// TestUnknownStaysUnknown: once an attempt may have executed, only success or the
// write's proof says more.
func TestUnknownStaysUnknown(t *testing.T) {
	const (
		unknown = sundog.Unknown
		none    = sundog.Kind(0)
	)
	for name, test := range map[string]struct {
		again    bool
		attempts []sundog.Kind // the last one is repeated
		want     sundog.Kind
	}{
		"done":                      {true, []sundog.Kind{none}, none},
		"done in the second":        {true, []sundog.Kind{unknown, none}, none},
		"no leader":                 {true, []sundog.Kind{sundog.NotOwner, sundog.Unavailable}, sundog.Unavailable},
		"not proposed":              {true, []sundog.Kind{sundog.Timeout}, sundog.Timeout},
		"refused":                   {true, []sundog.Kind{sundog.Invalid}, sundog.Invalid},
		"unknown, not repeatable":   {false, []sundog.Kind{unknown, none}, unknown},
		"unknown, then a timeout":   {true, []sundog.Kind{unknown, sundog.Timeout}, unknown},
		"unknown, then no leader":   {true, []sundog.Kind{unknown, sundog.Unavailable}, unknown},
		"unknown, then not here":    {true, []sundog.Kind{unknown, sundog.NotOwner}, unknown},
		"unknown, then refused":     {true, []sundog.Kind{unknown, sundog.Invalid}, unknown},
		"unknown, then closed":      {true, []sundog.Kind{unknown, sundog.NotOwner, sundog.Closed}, unknown},
		"unknown, then proved":      {true, []sundog.Kind{unknown, sundog.NotOwner, sundog.Exists}, sundog.Exists},
		"exists from the beginning": {true, []sundog.Kind{sundog.Exists}, sundog.Exists},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				doubt, at := false, 0
				write := catalogWrite{again: test.again, proof: sundog.Exists, doubt: &doubt}
				err := write.repeat(ctx, func(context.Context, sundog.NodeID, catalogWrite) error {
					kind := test.attempts[min(at, len(test.attempts)-1)]
					at++
					if kind == none {
						return nil
					}
					return sundog.Errorf(kind, "attempt %d", at)
				})
				require.Equal(t, test.want, sundog.KindOf(err), "%v", err)
				require.Equal(t, test.attempts[0] == unknown, doubt)
			})
		})
	}
}
