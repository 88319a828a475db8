package node

import (
	"strings"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/rpc"
)

// partBytes is more than an answer takes for one key or op beside its value and
// the text of its error: tags, version, number or deadline, the error's fields.
const partBytes = 64

// checkParts refuses a request of more parts than an answer has room for, before
// any of it is executed: TooLarge, naming both.
func checkParts(what string, n int) error {
	if n <= maxParts {
		return nil
	}
	err := sundog.Errorf(sundog.TooLarge, "a request of %d %s; the limit is %d: send more requests", n, what, maxParts)
	err.Used, err.Limit = int64(n), maxParts
	return err
}

// fitText is how long the text of each error may be, in bytes, so that an answer
// of n parts and so many bytes of values fits a frame even if all parts failed.
func fitText(n, values int) int {
	const head = 64 // of the frame and of the list
	return (rpc.Limits{}.WithDefaults().MaxFrame-head-values)/max(1, n) - partBytes
}

// shorten returns the error with at most so much text.
func shorten(err *sundog.Error, text int) *sundog.Error {
	if err == nil || len(err.Msg) <= text {
		return err
	}
	e := *err
	e.Msg = strings.ToValidUTF8(e.Msg[:max(0, text)], "")
	return &e
}
