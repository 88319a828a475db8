package node

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/sundog-kv/sundog"
	"github.com/sundog-kv/sundog/node/membership"
	"github.com/sundog-kv/sundog/rpc"
)

// Sizes of the table of counters, by method and kind.
const (
	methodSlots = 128
	kindSlots   = int(sundog.Internal) + 1
)

// metrics are the node's own figures, in a registry of its own: several nodes
// live in one process in tests.
type metrics struct {
	registry *prometheus.Registry
	seconds  [methodSlots]prometheus.Observer
	requests *prometheus.CounterVec
	counters [methodSlots][kindSlots]atomic.Pointer[prometheus.Counter] // of requests, once used
}

// gauges are read when somebody asks for the figures.
type gauges struct {
	groups, leaders, members, epoch, memoryUsed, memoryLimit, keys, bytes func() float64
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sundog_requests_total", Help: "Requests answered, by method and kind of error (\"ok\" without one).",
	}, []string{"method", "kind"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sundog_request_seconds", Help: "Time from the request's arrival to its answer, by method.",
		Buckets: prometheus.ExponentialBuckets(25e-6, 2.5, 14),
	}, []string{"method"})
	m.registry.MustRegister(m.requests, seconds,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, method := range methods() {
		m.seconds[method] = seconds.WithLabelValues(method.String())
	}
	return m
}

// methods are those that reach the handler.
func methods() []rpc.Method {
	return []rpc.Method{
		rpc.MethodGet, rpc.MethodMultiGet, rpc.MethodMutate, rpc.MethodScan,
		rpc.MethodMap, rpc.MethodPoolCreate, rpc.MethodPoolSet, rpc.MethodPoolDelete, rpc.MethodPoolDescribe,
		rpc.MethodNodes, rpc.MethodPartitions, rpc.MethodCheck,
		rpc.MethodFound, rpc.MethodJoin, rpc.MethodMapPush, rpc.MethodStatus, rpc.MethodReplicaCheck,
	}
}

// served counts one request.
func (m *metrics) served(method rpc.Method, err error, took time.Duration) {
	if int(method) >= methodSlots || m.seconds[method] == nil {
		return // unknown methods would make labels without end
	}
	m.seconds[method].Observe(took.Seconds())
	kind := int(sundog.KindOf(err))
	if kind >= kindSlots {
		kind = int(sundog.Internal)
	}
	c := m.counters[method][kind].Load()
	if c == nil {
		name := "ok"
		if kind != 0 {
			name = sundog.Kind(kind).Error()
		}
		made := m.requests.WithLabelValues(method.String(), name)
		m.counters[method][kind].Store(&made)
		c = &made
	}
	(*c).Inc()
}

func (m *metrics) show(g gauges) {
	for _, f := range []struct {
		name, help string
		read       func() float64
	}{
		{"sundog_groups", "Raft groups of partitions on this node.", g.groups},
		{"sundog_leaders", "Partitions that this node leads.", g.leaders},
		{"sundog_gossip_members", "Members that gossip believes alive, this node included.", g.members},
		{"sundog_map_epoch", "Epoch of the cluster map on this node.", g.epoch},
		{"sundog_memory_used_bytes", "Table memory mapped.", g.memoryUsed},
		{"sundog_memory_limit_bytes", "Table memory allowed (--memory).", g.memoryLimit},
		{"sundog_keys", "Keys in all replicas on this node.", g.keys},
		{"sundog_data_bytes", "Bytes of keys and values in all replicas on this node.", g.bytes},
	} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: f.name, Help: f.help}, f.read))
	}
}

// gossipEvents shows the counts of the membership.
type gossipEvents struct {
	desc  *prometheus.Desc
	stats func() membership.Stats
}

// showGossip registers the membership's counts.
func (m *metrics) showGossip(stats func() membership.Stats) {
	m.registry.MustRegister(gossipEvents{stats: stats, desc: prometheus.NewDesc(
		"sundog_gossip_events_total", "What gossip met: suspicions, refutations, failures, joins, refused messages.", []string{"event"}, nil)})
}

// Describe implements [prometheus.Collector].
func (g gossipEvents) Describe(ch chan<- *prometheus.Desc) { ch <- g.desc }

// Collect implements [prometheus.Collector].
func (g gossipEvents) Collect(ch chan<- prometheus.Metric) {
	s := g.stats()
	for event, n := range map[string]uint64{
		"suspected": s.Suspected, "refuted": s.Refuted, "failed": s.Failed, "joins": s.Joins, "join_errors": s.JoinErrors,
		"foreign": s.Foreign, "malformed": s.Malformed, "conflicts": s.Conflicts, "refused": s.Refused,
	} {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.CounterValue, float64(n), event)
	}
}
