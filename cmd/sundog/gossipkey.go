package main

import (
	"encoding/base64"
	"os"
)

// key reads a gossip key: 16, 24 or 32 bytes as they are, or in base64.
func (s *settings) key(name string) []byte {
	text := s.content(name)
	if text == nil || keyLength(len(text)) {
		return text
	}
	if raw, err := base64.StdEncoding.DecodeString(string(text)); err == nil && keyLength(len(raw)) {
		return raw
	}
	// Bytes at the ends that look like space belong to a key of any bytes.
	if raw, err := os.ReadFile(s.text(name)); err == nil && keyLength(len(raw)) {
		return raw
	}
	s.fail("%s: want 16, 24 or 32 bytes, as they are or in base64; make one by: head -c 32 /dev/urandom | base64", name)
	return nil
}

func keyLength(n int) bool { return n == 16 || n == 24 || n == 32 }
