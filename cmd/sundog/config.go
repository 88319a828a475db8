package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node"
)

// startFlags declares every setting of start. A name is a flag, with SUNDOG_ and
// in capitals a variable of the environment, and a key of the YAML file.
func startFlags(f *pflag.FlagSet) {
	f.String("data", "", "data `DIR`ectory, made if it is not there")
	f.String("listen", ":7400", "`HOST:PORT` for data and control; port 0 asks the kernel")
	f.String("gossip", ":7401", "`HOST:PORT` for gossip, TCP and UDP")
	f.String("http", ":7402", "`HOST:PORT` for health, readiness and metrics")
	f.String("advertise", "", "`HOST` that others reach this node by (default: the one it listens on)")
	f.StringSlice("join", nil, "gossip `HOST:PORT` of members to join by, comma-separated")
	f.Int("bootstrap-expect", 0, "found a cluster together with this many nodes in all")
	f.Int("partitions", 32, "partitions of a cluster that is founded: a power of two, at least 4 times the nodes ever expected")
	f.String("zone", "", "failure domain; copies are spread over zones")
	f.String("memory", "", "`SIZE` for data, such as 512MiB (default: half of the machine's)")
	f.String("fabric", "auto", "auto or tcp in this release")
	f.String("secret-file", "", "`FILE` with the cluster's secret; needed beyond loopback")
	f.String("gossip-key-file", "", "`FILE` with a gossip key of 16, 24 or 32 bytes, as they are or in base64")
	f.String("tls-cert", "", "certificate `FILE`: not in this release")
	f.String("tls-key", "", "key `FILE`: not in this release")
	f.String("tls-ca", "", "authority `FILE`: not in this release")
	f.Bool("auth", false, "require tokens: not in this release")
	f.String("ports-file", "", "write the addresses in use to `FILE` as JSON")
	f.Bool("pprof", false, "serve /debug/pprof on the HTTP port")
}

// loadConfig merges the settings of start: flags over environment over the YAML
// file, over the flags' defaults. Errors are Invalid and name what to change.
func loadConfig(flags *pflag.FlagSet, environ []string) (node.Config, error) {
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	startFlags(known)
	k := koanf.New("\x00") // no name is split
	if path := configPath(flags, environ); path != "" {
		if err := noTilde("--config", path); err != nil {
			return node.Config{}, err
		}
		if err := loadFile(k, known, path); err != nil {
			return node.Config{}, err
		}
	}
	variables := env.Provider("\x00", env.Opt{
		Prefix:      "SUNDOG_",
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			key := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "SUNDOG_")), "_", "-")
			if known.Lookup(key) == nil || value == "" {
				return "", nil // for another command, or for nobody
			}
			return key, value
		},
	})
	if err := k.Load(variables, nil); err != nil {
		return node.Config{}, err
	}
	// Flags that were not given fill only what nobody else has said.
	given := posflag.ProviderWithFlag(flags, "\x00", k, func(f *pflag.Flag) (string, any) {
		if known.Lookup(f.Name) == nil {
			return "", nil
		}
		return f.Name, posflag.FlagVal(flags, f)
	})
	if err := k.Load(given, nil); err != nil {
		return node.Config{}, err
	}
	s := settings{k: k}
	cfg := s.config()
	return cfg, s.err
}

func configPath(flags *pflag.FlagSet, environ []string) string {
	if f := flags.Lookup("config"); f != nil && f.Changed {
		return f.Value.String()
	}
	for _, kv := range environ {
		if path, ok := strings.CutPrefix(kv, "SUNDOG_CONFIG="); ok {
			return path
		}
	}
	return ""
}

func loadFile(k *koanf.Koanf, known *pflag.FlagSet, path string) error {
	if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return sundog.Errorf(sundog.Invalid, "--config %s: no such file", path)
		}
		return sundog.Errorf(sundog.Invalid, "--config %s: %w", path, err)
	}
	keys := k.Keys()
	slices.Sort(keys)
	for _, key := range keys {
		// A nested key shows as a path: its first part is what the file has.
		key, _, _ = strings.Cut(key, "\x00")
		if known.Lookup(key) == nil {
			return sundog.Errorf(sundog.Invalid, "--config %s: unknown key %q%s", path, key, nearest(key, known))
		}
	}
	return nil
}

// nearest advises on a name that is not known: the one that is close to it, or all.
func nearest(key string, known *pflag.FlagSet) string {
	var names []string
	known.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if near := near(strings.ReplaceAll(key, "_", "-"), names); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return "; known are " + strings.Join(names, ", ")
}

// near is the name that a person may have meant by one, "" for none.
func near(name string, names []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, n := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance is Levenshtein's: the least insertions, removals and replacements of
// a byte that make a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// settings reads typed values out of the merged layers and keeps the first error.
type settings struct {
	k   *koanf.Koanf
	err error
}

func (s *settings) fail(format string, args ...any) {
	if s.err == nil {
		s.err = sundog.Errorf(sundog.Invalid, format, args...)
	}
}

// text is a setting as one would write it as a flag.
func (s *settings) text(key string) string {
	switch v := s.k.Get(key).(type) {
	case nil:
		return ""
	case []string:
		return strings.Join(v, ",")
	case []any:
		if key != "join" {
			s.fail("%s: want a single value, not a list", key)
			return ""
		}
		parts := make([]string, len(v))
		for i, p := range v {
			parts[i] = fmt.Sprint(p)
		}
		return strings.Join(parts, ",")
	case map[string]any:
		s.fail("%s: want a single value", key)
		return ""
	default:
		return strings.TrimSpace(fmt.Sprint(v))
	}
}

func (s *settings) list(key string) []string {
	var out []string
	for part := range strings.SplitSeq(s.text(key), ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func (s *settings) number(key string) int {
	text := s.text(key)
	n, err := strconv.Atoi(text)
	if err != nil {
		s.fail("%s %q: want a whole number", key, text)
	}
	return n
}

func (s *settings) truth(key string) bool {
	text := s.text(key)
	b, err := strconv.ParseBool(text)
	if err != nil {
		s.fail("%s %q: want true or false", key, text)
	}
	return b
}

func (s *settings) size(key string) int64 {
	text := s.text(key)
	if text == "" {
		return 0
	}
	n, err := parseSize(text)
	if err != nil {
		s.fail("%s %q: %s", key, text, textOf(err))
	}
	return n
}

// parseSize reads a number of bytes: 1048576, 512MiB, 1.5GiB, 64MB (10^6).
func parseSize(text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || n > math.MaxInt64 {
		return 0, sundog.Errorf(sundog.Invalid, "want a size such as 1048576, 512MiB or 2GiB")
	}
	return int64(n), nil
}

// config checks what only the command line knows of, and makes the node's.
func (s *settings) config() node.Config {
	for _, key := range []string{"tls-cert", "tls-key", "tls-ca"} {
		if s.text(key) != "" {
			s.fail("%s: TLS is not in this release; on a network of your own use --secret-file and --gossip-key-file", key)
		}
	}
	for _, key := range []string{"data", "secret-file", "gossip-key-file", "ports-file"} {
		if err := noTilde(key, s.text(key)); err != nil {
			s.fail("%s", err.Msg)
		}
	}
	if s.truth("auth") {
		s.fail("auth: tokens are not in this release")
	}
	return node.Config{
		Data: s.text("data"), Listen: s.text("listen"), Gossip: s.text("gossip"), HTTP: s.text("http"),
		Advertise: s.text("advertise"), Join: s.list("join"), BootstrapExpect: s.number("bootstrap-expect"),
		Partitions: s.number("partitions"), Zone: s.text("zone"), Memory: s.size("memory"),
		Fabric: s.text("fabric"), Secret: s.content("secret-file"), GossipKey: s.key("gossip-key-file"),
		PortsFile: s.text("ports-file"), Pprof: s.truth("pprof"),
	}
}

// noTilde refuses a path that was meant for a shell to expand: it would be made as
// a directory of that name.
func noTilde(name, path string) *sundog.Error {
	if !strings.HasPrefix(path, "~") {
		return nil
	}
	return sundog.Errorf(sundog.Invalid, "%s %s: only a shell knows ~, and not here; write the whole path (or ./%s)", name, path, path)
}

// content reads the file that a setting names, without the space around it.
func (s *settings) content(key string) []byte {
	path := s.text(key)
	if path == "" {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		s.fail("%s: %w", key, err)
		return nil
	}
	if b = []byte(strings.TrimSpace(string(b))); len(b) == 0 {
		s.fail("%s: %s is empty; fill it, for instance, by: head -c 32 /dev/urandom | base64", key, path)
	}
	return b
}
