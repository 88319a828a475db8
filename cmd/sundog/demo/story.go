package demo

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
)

// story tells a person what happens, a chapter at a time. With a nil writer it
// is silent.
type story struct {
	w       io.Writer
	bars    bool // the writer is a terminal
	started time.Time
}

func newStory(w io.Writer, bars bool) *story {
	return &story{w: w, bars: bars, started: time.Now()}
}

func (s *story) chapter(format string, args ...any) {
	if s.w != nil {
		fmt.Fprintf(s.w, "\n%5.1fs  %s\n", time.Since(s.started).Seconds(), fmt.Sprintf(format, args...))
	}
}

func (s *story) line(format string, args ...any) {
	if s.w != nil {
		fmt.Fprintf(s.w, "        %s\n", fmt.Sprintf(format, args...))
	}
}

// progress returns a function to be called with the number of things done since
// the last call, and one that ends the bar. Off a terminal both do nothing.
func (s *story) progress(total int, what string) (add func(int), end func()) {
	if s.w == nil || !s.bars {
		return func(int) {}, func() {}
	}
	bar := progressbar.NewOptions(total,
		progressbar.OptionSetWriter(s.w), progressbar.OptionSetDescription("        "+what),
		progressbar.OptionSetWidth(30), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond))
	return func(n int) { bar.Add(n) }, func() { bar.Finish() }
}
