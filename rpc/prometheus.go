package rpc

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sundog-kv/sundog"
)

// NewMetrics makes Metrics and registers them with reg (nil: nowhere); an error
// is reg's, of kind [sundog.Internal].
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{}
	if reg == nil {
		return m, nil
	}
	if err := reg.Register(newCollector(m)); err != nil {
		return nil, sundog.Errorf(sundog.Internal, "register the rpc metrics: %w", err)
	}
	return m, nil
}

// collector shows Metrics to Prometheus. The counters are read when they are
// asked for, so that counting costs an addition and nothing else.
type collector struct {
	m *Metrics

	conns, accepted, dialled, dialErrors, refused *prometheus.Desc
	frames, bytes, writes                         *prometheus.Desc
	requests, seconds, errors, panics             *prometheus.Desc
	expired, stalled                              *prometheus.Desc
}

func newCollector(m *Metrics) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sundog_rpc_"+name, help, labels, nil)
	}
	return &collector{
		m:          m,
		conns:      desc("connections", "Connections open now, by the side of this process.", "side"),
		accepted:   desc("connections_accepted_total", "Connections taken by servers."),
		dialled:    desc("dials_total", "Connections dialled that shook hands."),
		dialErrors: desc("dial_errors_total", "Dials that failed."),
		refused:    desc("connections_refused_total", "Connections closed before service, by reason.", "reason"),
		frames:     desc("frames_total", "Frames, by direction.", "direction"),
		bytes:      desc("bytes_total", "Bytes of frames, by direction.", "direction"),
		writes:     desc("writes_total", "Vectored writes; frames out over writes is how well they coalesce."),
		requests:   desc("requests_total", "Requests served, by method.", "method"),
		seconds:    desc("request_seconds_total", "Time in handlers, by method.", "method"),
		errors:     desc("errors_total", "Errors answered, by kind.", "kind"),
		panics:     desc("panics_total", "Handlers that panicked."),
		expired:    desc("expired_total", "Requests dropped because their time had passed before service."),
		stalled:    desc("stalled_total", "Connections given up because the other side made no progress."),
	}
}

// Describe sends all descriptions (prometheus.Collector).
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.conns, c.accepted, c.dialled, c.dialErrors, c.refused, c.frames, c.bytes, c.writes,
		c.requests, c.seconds, c.errors, c.panics, c.expired, c.stalled,
	} {
		ch <- d
	}
}

// Collect sends all values (prometheus.Collector). Methods and kinds that never
// occurred are left out.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for side, name := range []string{sideServer: "server", sideDialer: "dialer"} {
		ch <- prometheus.MustNewConstMetric(c.conns, prometheus.GaugeValue, float64(c.m.conns[side].Load()), name)
	}
	count(c.accepted, c.m.accepted.Load())
	count(c.dialled, c.m.dialled.Load())
	count(c.dialErrors, c.m.dialErrors.Load())
	for i, name := range refusalNames {
		count(c.refused, c.m.refused[i].Load(), name)
	}
	for dir, name := range []string{dirIn: "in", dirOut: "out"} {
		count(c.frames, c.m.frames[dir].Load(), name)
		count(c.bytes, c.m.bytes[dir].Load(), name)
	}
	count(c.writes, c.m.writes.Load())
	for i := range c.m.requests {
		if n := c.m.requests[i].Load(); n != 0 {
			count(c.requests, n, methodLabel(i))
			ch <- prometheus.MustNewConstMetric(c.seconds, prometheus.CounterValue, float64(c.m.seconds[i].Load())/1e9, methodLabel(i))
		}
	}
	for i := range c.m.errors {
		if n := c.m.errors[i].Load(); n != 0 {
			count(c.errors, n, strings.ReplaceAll(sundog.Kind(i).Error(), " ", "-"))
		}
	}
	count(c.panics, c.m.panics.Load())
	count(c.expired, c.m.expired.Load())
	count(c.stalled, c.m.stalled.Load())
}

// methodLabel names a slot of the tables by method; the last is for all numbers
// above.
func methodLabel(slot int) string {
	if slot == methodSlots-1 {
		return "other"
	}
	return Method(slot).String()
}
