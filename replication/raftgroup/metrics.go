package raftgroup

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the figures of all groups, the store and the transport of a node.
// A nil *Metrics counts nothing.
type Metrics struct {
	commitSeconds prometheus.Histogram
	commitOps     prometheus.Histogram
	commitBytes   prometheus.Counter
	proposals     prometheus.Counter
	entries       prometheus.Counter
	snapshots     prometheus.Counter
	installs      prometheus.Counter
	recreated     prometheus.Counter
	refused       *prometheus.CounterVec
	dials         *prometheus.CounterVec
}

// NewMetrics makes the figures and registers them. The error is the
// registerer's.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "sundog_raft_" + name, Help: help})
	}
	m := &Metrics{
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sundog_raft_store_commit_seconds", Help: "Time of one log store transaction with its sync.",
			Buckets: prometheus.ExponentialBuckets(1e-4, 2, 16),
		}),
		commitOps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sundog_raft_store_commit_operations", Help: "Operations of all groups in one log store transaction.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		commitBytes: counter("store_bytes_total", "Bytes of log records given to the log store."),
		proposals:   counter("commands_total", "Commands packed into log entries by this node."),
		entries:     counter("entries_total", "Log entries proposed by this node."),
		snapshots:   counter("snapshots_total", "Snapshots taken."),
		installs:    counter("snapshot_installs_total", "Snapshots received from a leader and installed."),
		recreated:   counter("recreated_total", "Raft instances made anew on the same stores after an installation."),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sundog_raft_refused_frames_total", Help: "Frames refused by the transport, by reason.",
		}, []string{"reason"}),
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sundog_raft_dials_total", Help: "Connections dialled by the transport, by lane and outcome.",
		}, []string{"lane", "outcome"}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.commitSeconds, m.commitOps, m.commitBytes, m.proposals, m.entries,
		m.snapshots, m.installs, m.recreated, m.refused, m.dials,
	} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *Metrics) refuse(reason string) {
	if m != nil {
		m.refused.WithLabelValues(reason).Inc()
	}
}

func (m *Metrics) dialled(lane string, err error) {
	if m == nil {
		return
	}
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.dials.WithLabelValues(lane, outcome).Inc()
}
