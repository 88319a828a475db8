//go:build !race

package membership

// underRace: see race_on_test.go.
const underRace = false
