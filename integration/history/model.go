package history

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/sundog-kv/sundog"
)

// register is the state of one key.
type register struct {
	found   bool
	value   string
	version sundog.Version // of the value, or zero when its writer was not told
	floor   sundog.Version // no later change may have a version at or below this
}

// model is a versioned register a key.
var model = porcupine.Model{
	Partition: byKey,
	Init:      func() any { return register{} },
	Step: func(state, input, output any) (bool, any) {
		return step(state.(register), input.(Op), output.(Result))
	},
	Equal:             func(a, b any) bool { return a.(register) == b.(register) },
	DescribeOperation: describe,
	DescribeState: func(state any) string {
		s := state.(register)
		if !s.found {
			return "absent"
		}
		return s.value + "@" + s.version.String()
	},
}

func byKey(ops []porcupine.Operation) [][]porcupine.Operation {
	index := map[string]int{}
	var parts [][]porcupine.Operation
	for _, op := range ops {
		key := op.Input.(Op).Key
		i, ok := index[key]
		if !ok {
			i = len(parts)
			index[key] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// step says whether an operation with this result may happen in the state, and
// what the state is after it.
func step(s register, op Op, res Result) (bool, register) {
	switch op.Code {
	case Get:
		return s.read(res)
	case Delete:
		if !res.Unknown && res.Found != s.found {
			return false, s
		}
		if !s.found {
			return true, s
		}
		return s.change("", false, res)
	case PutIfAbsent:
		return s.conditional(!s.found, op, res)
	case PutIfVersion:
		// Whoever asks for a version was told it, so an operation that ended before
		// this call has set it in the state.
		return s.conditional(s.found && s.version == op.IfVersion, op, res)
	default:
		return s.change(op.Value, true, res)
	}
}

func (s register) read(res Result) (bool, register) {
	if res.Found != s.found || res.Found && res.Value != s.value {
		return false, s
	}
	if !s.found {
		return true, s
	}
	if s.version.IsZero() { // the first to learn the version of an unknown write
		if res.Version.Compare(s.floor) <= 0 {
			return false, s
		}
		s.version, s.floor = res.Version, res.Version
	}
	return res.Version == s.version, s
}

func (s register) conditional(holds bool, op Op, res Result) (bool, register) {
	if !res.Unknown && res.Applied != holds {
		return false, s
	}
	if !holds {
		return true, s
	}
	return s.change(op.Value, true, res)
}

// change replaces the value; a version that was told must be above all before.
func (s register) change(value string, found bool, res Result) (bool, register) {
	next := register{found: found, value: value, floor: s.floor}
	if !res.Unknown && !res.Version.IsZero() {
		if res.Version.Compare(s.floor) <= 0 {
			return false, s
		}
		next.version, next.floor = res.Version, res.Version
	}
	if !found {
		next.version = sundog.Version{}
	}
	return true, next
}

func describe(input, output any) string {
	op, res := input.(Op), output.(Result)
	out := fmt.Sprintf("%+v", res)
	if res.Unknown {
		out = "unknown"
	}
	names := [...]string{"get", "put", "delete", "put-if-absent", "put-if-version"}
	return fmt.Sprintf("%s(%s %s) -> %s", names[op.Code], op.Key, op.Value, out)
}
