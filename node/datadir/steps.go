package datadir

import (
	"encoding/binary"
	"maps"

	"github.com/sundog-kv/sundog"
)

// StepKey names what catalog steps are counted for: a group (0 the catalog,
// 1+p partition p), and a pool inside it, 0 for the group itself.
type StepKey struct {
	Group uint32
	Pool  sundog.PoolID
}

const stepSize = 4 + 8 + 8 // group, pool, step: little-endian

// Step returns the highest catalog step this node has seen for key, 0 for none.
func (d *Dir) Step(key StepKey) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.steps[key]
}

// RaiseSteps notes durably, all or nothing, that these steps were seen. A step
// equal to the one known is nothing new; a lower one refuses the whole call
// with Stale: its order is from an older plan.
func (d *Dir) RaiseSteps(steps map[StepKey]uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := false
	for key, step := range steps {
		known := d.steps[key]
		if step < known {
			return sundog.Errorf(sundog.Stale, "step %d for group %d pool %d: step %d was seen", step, key.Group, key.Pool, known)
		}
		changed = changed || step > known
	}
	if !changed {
		return nil
	}
	next := maps.Clone(d.steps)
	maps.Copy(next, steps)
	if err := d.replace(stepsName, encodeBlob(encodeSteps(next))); err != nil {
		return err
	}
	d.steps = next
	return nil
}

func (d *Dir) loadSteps() error {
	d.steps = map[StepKey]uint64{}
	data, err := d.readBlob(stepsName)
	if sundog.KindOf(err) == sundog.NotFound {
		return nil
	}
	if err == nil {
		d.steps, err = decodeSteps(data)
	}
	if err != nil {
		return sundog.Errorf(sundog.Corrupt, "%w; this file fences old orders and cannot be made anew: "+
			"restore it, or move the data directory away and let the node join as a new one", err)
	}
	return nil
}

func encodeSteps(steps map[StepKey]uint64) []byte {
	data := make([]byte, 0, len(steps)*stepSize)
	for key, step := range steps {
		data = binary.LittleEndian.AppendUint32(data, key.Group)
		data = binary.LittleEndian.AppendUint64(data, uint64(key.Pool))
		data = binary.LittleEndian.AppendUint64(data, step)
	}
	return data
}

func decodeSteps(data []byte) (map[StepKey]uint64, error) {
	if len(data)%stepSize != 0 {
		return nil, sundog.Errorf(sundog.Corrupt, "steps: %d bytes are no multiple of %d", len(data), stepSize)
	}
	steps := make(map[StepKey]uint64, len(data)/stepSize)
	for ; len(data) > 0; data = data[stepSize:] {
		key := StepKey{Group: binary.LittleEndian.Uint32(data), Pool: sundog.PoolID(binary.LittleEndian.Uint64(data[4:]))}
		if _, twice := steps[key]; twice {
			return nil, sundog.Errorf(sundog.Corrupt, "steps: group %d pool %d is there twice", key.Group, key.Pool)
		}
		steps[key] = binary.LittleEndian.Uint64(data[12:])
	}
	return steps, nil
}
