//go:build race

package membership

// underRace: the race detector makes the largest simulation several times
// slower; it then runs with fewer names.
const underRace = true
