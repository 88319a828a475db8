package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// machine looks at what Linux allows this process.
func machine() []findingJSON {
	return []findingJSON{openFiles(), lockedMemory(), hugePages(), clockSource()}
}

func limit(resource int) (text string, value uint64) {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil {
		return err.Error(), 0
	}
	if r.Cur == unix.RLIM_INFINITY {
		return "unlimited", r.Cur
	}
	return fmt.Sprint(r.Cur), r.Cur
}

func openFiles() findingJSON {
	const enough = 16384 // 10,000 client connections, peers, files
	text, n := limit(unix.RLIMIT_NOFILE)
	f := findingJSON{Name: "open files", Value: text, OK: n >= enough}
	if !f.OK {
		f.Advice = fmt.Sprintf("each connection takes one; for 10,000 clients raise it: ulimit -n %d, or LimitNOFILE= of the service", enough)
	}
	return f
}

func lockedMemory() findingJSON {
	const little = 64 << 20
	text, n := limit(unix.RLIMIT_MEMLOCK)
	if text == fmt.Sprint(n) {
		text = bytesOf(int64(n))
	}
	f := findingJSON{Name: "memlock", Value: text, OK: n >= little}
	if !f.OK {
		f.Advice = "enough for this release; RDMA devices of later ones lock the data in memory: ulimit -l unlimited, or LimitMEMLOCK=infinity"
	}
	return f
}

func hugePages() findingJSON {
	f := findingJSON{Name: "huge pages", Value: "unknown", OK: true}
	b, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		return f
	}
	mode := string(b)
	if _, rest, ok := strings.Cut(mode, "["); ok {
		mode, _, _ = strings.Cut(rest, "]")
	}
	f.Value = "transparent: " + strings.TrimSpace(mode)
	if info, err := os.ReadFile("/proc/meminfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if n, ok := strings.CutPrefix(line, "HugePages_Total:"); ok {
				f.Value += ", reserved: " + strings.TrimSpace(n) + " pages"
			}
		}
	}
	if f.OK = mode != "never"; !f.OK {
		f.Advice = "large tables are faster with them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
	}
	return f
}

func clockSource() findingJSON {
	f := findingJSON{Name: "clock source", Value: "unknown", OK: true}
	b, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return f
	}
	f.Value = strings.TrimSpace(string(b))
	switch f.Value {
	case "hpet", "acpi_pm", "jiffies", "refined-jiffies":
		f.OK = false
		f.Advice = "reading this clock is slow, and every operation reads one: use tsc, or kvm-clock in a virtual machine"
	}
	return f
}
