package main

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node"
)

// parse loads the configuration that a command line, an environment and a file
// make together.
func parse(t *testing.T, args, environ []string, file string) (node.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("start", pflag.ContinueOnError)
	startFlags(flags)
	flags.String("config", "", "")
	if file != "" {
		args = append(args, "--config", write(t, "sundog.yaml", file))
	}
	require.NoError(t, flags.Parse(args))
	return loadConfig(flags, environ)
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestConfigPrecedence(t *testing.T) {
	file := `
data: /from/file
listen: 127.0.0.1:1
gossip: 127.0.0.1:2
zone: file
memory: 64MiB
bootstrap-expect: 3
join: [a:1, b:2]
pprof: true
`
	environ := []string{"SUNDOG_LISTEN=127.0.0.1:11", "SUNDOG_ZONE=env", "SUNDOG_MEMORY=1.5GiB", "SUNDOG_BOOTSTRAP_EXPECT=5", "SUNDOG_ADDR=ignored:1", "SUNDOG_LOG=off", "OTHER=1", "SUNDOG_PARTITIONS="}
	cfg, err := parse(t, []string{"--zone", "flag", "--join", "c:3,d:4"}, environ, file)
	require.NoError(t, err)
	require.Equal(t, "/from/file", cfg.Data, "only the file has it")
	require.Equal(t, "127.0.0.1:11", cfg.Listen, "environment over file")
	require.Equal(t, "127.0.0.1:2", cfg.Gossip)
	require.Equal(t, ":7402", cfg.HTTP, "nobody has it: the default")
	require.Equal(t, "flag", cfg.Zone, "flag over environment over file")
	require.Equal(t, int64(1536<<20), cfg.Memory)
	require.Equal(t, 5, cfg.BootstrapExpect)
	require.Equal(t, 32, cfg.Partitions, "an empty variable says nothing")
	require.Equal(t, []string{"c:3", "d:4"}, cfg.Join)
	require.True(t, cfg.Pprof)

	cfg, err = parse(t, nil, []string{"SUNDOG_JOIN=x:1, y:2"}, file)
	require.NoError(t, err)
	require.Equal(t, []string{"x:1", "y:2"}, cfg.Join)
	cfg, err = parse(t, nil, nil, file)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, cfg.Join)
	require.Equal(t, int64(64<<20), cfg.Memory)

	cfg, err = parse(t, nil, []string{"SUNDOG_CONFIG=" + write(t, "c.yaml", "zone: 7\nmemory: 1048576\n")}, "")
	require.NoError(t, err)
	require.Equal(t, "7", cfg.Zone, "a number is a fine label")
	require.Equal(t, int64(1<<20), cfg.Memory)

	// A flag that repeats its default still wins.
	cfg, err = parse(t, []string{"--partitions", "32"}, []string{"SUNDOG_PARTITIONS=64"}, "partitions: 128\n")
	require.NoError(t, err)
	require.Equal(t, 32, cfg.Partitions)
}

func TestConfigIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, file string
		args, env  []string
		want       []string
	}{
		{name: "unknown key", file: "lisen: x\n", want: []string{`"lisen"`, `"listen"`}},
		{name: "unknown key with underscore", file: "secret_file: x\n", want: []string{`"secret_file"`, `"secret-file"`}},
		{name: "nested key", file: "listen:\n  port: 1\n", want: []string{"listen"}},
		{name: "nested unknown key", file: "server:\n  listen: x\n", want: []string{`"server"`}},
		{name: "far from all", file: "qqqqqqqqqqqqqqqq: 1\n", want: []string{"known are", "bootstrap-expect"}},
		{name: "a list where one value is wanted", file: "listen: [127.0.0.1:1, 127.0.0.1:2]\n", want: []string{"listen", "single value"}},
		{name: "a home", file: "data: ~/sundog\n", want: []string{"data ~/sundog", "whole path"}},
		{name: "a config at home", args: []string{"--config", "~/c.yaml"}, want: []string{"--config ~/c.yaml", "whole path"}},
		{name: "no YAML", file: "a: b: c\n", want: []string{"sundog.yaml"}},
		{name: "number", file: "partitions: many\n", want: []string{"partitions", `"many"`}},
		{name: "truth", env: []string{"SUNDOG_PPROF=perhaps"}, want: []string{"pprof", `"perhaps"`}},
		{name: "size", args: []string{"--memory", "12XB"}, want: []string{"memory", `"12XB"`, "512MiB"}},
		{name: "tls", args: []string{"--tls-cert", "f"}, want: []string{"tls-cert", "not in this release"}},
		{name: "auth", args: []string{"--auth"}, want: []string{"auth", "not in this release"}},
		{name: "no secret file", args: []string{"--secret-file", "/no/such"}, want: []string{"secret-file", "/no/such"}},
		{name: "no config file", args: []string{"--config", "/no/such.yaml"}, want: []string{"/no/such.yaml", "no such file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse(t, c.args, c.env, c.file)
			require.ErrorIs(t, err, sundog.Invalid)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestFarNamesAreNoAdvice(t *testing.T) {
	_, err := parse(t, nil, nil, "replication: 3\n")
	require.ErrorContains(t, err, "known are")
	require.NotContains(t, err.Error(), "did you mean")
}

func TestKeyFiles(t *testing.T) {
	raw := strings.Repeat("k", 32)
	for name, content := range map[string]string{
		"raw": raw, "raw line": raw + "\n", "base64": base64.StdEncoding.EncodeToString([]byte(raw)) + "\n",
	} {
		cfg, err := parse(t, []string{"--gossip-key-file", write(t, "key", content)}, nil, "")
		require.NoError(t, err, name)
		require.Equal(t, raw, string(cfg.GossipKey), name)
	}
	edge := "\n" + strings.Repeat("k", 14) + " "
	cfg, err := parse(t, []string{"--gossip-key-file", write(t, "key", edge)}, nil, "")
	require.NoError(t, err)
	require.Equal(t, edge, string(cfg.GossipKey))

	_, err = parse(t, []string{"--gossip-key-file", write(t, "key", "short")}, nil, "")
	require.ErrorContains(t, err, "16, 24 or 32")
	_, err = parse(t, []string{"--secret-file", write(t, "secret", " \n")}, nil, "")
	require.ErrorContains(t, err, "empty")
	cfg, err = parse(t, []string{"--secret-file", write(t, "secret", "a long enough secret\n")}, nil, "")
	require.NoError(t, err)
	require.Equal(t, "a long enough secret", string(cfg.Secret))
}

func TestDistance(t *testing.T) {
	require.Equal(t, 0, distance("listen", "listen"))
	require.Equal(t, 1, distance("lisen", "listen"))
	require.Equal(t, 3, distance("kitten", "sitting"))
	require.Equal(t, 4, distance("", "zone"))
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1048576": 1 << 20, "512MiB": 512 << 20, "1.5GiB": 1536 << 20, "64MB": 64e6, "4 KiB": 4096} {
		n, err := parseSize(text)
		require.NoError(t, err)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "-1", "x", "1XiB"} {
		_, err := parseSize(text)
		require.ErrorIs(t, err, sundog.Invalid, text)
	}
}
