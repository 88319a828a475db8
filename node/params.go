package node

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/sundog-kv/sundog"
)

// params writes what is fixed for ever at founding as the text that founders
// compare: those who were told different figures never found together.
func params(partitions int, t sundog.Timings) string {
	return fmt.Sprintf("partitions=%d heartbeat=%dns lease=%dns", partitions, t.Heartbeat, t.Lease)
}

// parseParams reads what [params] wrote; Corrupt otherwise.
func parseParams(s string) (partitions int, t sundog.Timings, err error) {
	var heartbeat, lease int64
	if _, err = fmt.Sscanf(s, "partitions=%d heartbeat=%dns lease=%dns", &partitions, &heartbeat, &lease); err != nil {
		return 0, t, sundog.Errorf(sundog.Corrupt, "founding parameters %.100q: %w", s, err)
	}
	t = sundog.Timings{Heartbeat: time.Duration(heartbeat), Lease: time.Duration(lease)}
	if !sundog.ValidPartitions(partitions) || heartbeat <= 0 || lease <= 0 {
		return 0, t, sundog.Errorf(sundog.Corrupt, "founding parameters %.100q are out of range", s)
	}
	return partitions, t, nil
}

// gossipKey derives the key of gossip from the cluster's secret where none is
// given (HKDF-SHA256, RFC 5869), so that one file protects both ports. It is nil
// without a secret.
func gossipKey(c Config) ([]byte, error) {
	if len(c.GossipKey) > 0 || len(c.Secret) == 0 {
		return c.GossipKey, nil
	}
	return hkdf.Key(sha256.New, c.Secret, nil, "sundog gossip key v1", 32)
}
