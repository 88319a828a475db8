package client_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/client"
)

// Every go block of the manual is source of the compiled examples, and every
// example is shown.
func TestManualShowsTheExamples(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "client.md"))
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	shown := 0
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		require.Contains(t, string(source), block[1])
		shown += strings.Count("\n"+block[1], "\nfunc ")
	}
	require.Equal(t, strings.Count(string(source), "\nfunc "), shown)
}

// The examples do what they say.
func TestExamplesRun(t *testing.T) {
	p := client.FakePool(t)
	ctx := t.Context()
	require.NoError(t, store(ctx, p, []byte("dune"), []byte("Herbert")))
	require.NoError(t, rename(ctx, p, []byte("dune"), []byte("F. Herbert")))
	require.ErrorIs(t, rename(ctx, p, []byte("none"), nil), sundog.NotFound)
	mine, err := claim(ctx, p, []byte("lock"), []byte("me"))
	require.NoError(t, err)
	require.True(t, mine)
	mine, err = claim(ctx, p, []byte("lock"), []byte("you"))
	require.NoError(t, err)
	require.False(t, mine)
	require.NoError(t, many(ctx, p))
	require.NoError(t, walk(ctx, p))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.Error(t, program(ended))
}
