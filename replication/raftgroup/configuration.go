package raftgroup

import (
	"github.com/hashicorp/raft"
	"github.com/sundog-kv/sundog"
)

// decodeConfiguration is raft.DecodeConfiguration for bytes that may not be one:
// raft's panics, here it is an error of kind Corrupt.
func decodeConfiguration(b []byte) (c raft.Configuration, err error) {
	defer func() {
		if recover() != nil {
			err = corrupt("configuration")
		}
	}()
	return raft.DecodeConfiguration(b), nil
}

func checkConfiguration(b []byte) error {
	c, err := decodeConfiguration(b)
	if err != nil {
		return err
	}
	if len(c.Servers) > 64 {
		return sundog.Errorf(sundog.Corrupt, "raft configuration of %d servers", len(c.Servers))
	}
	return nil
}

// split returns the voters' and the other members' server ids.
func split(c raft.Configuration) (voters, learners []string) {
	for _, s := range c.Servers {
		if s.Suffrage == raft.Voter {
			voters = append(voters, string(s.ID))
		} else {
			learners = append(learners, string(s.ID))
		}
	}
	return voters, learners
}

func newConfiguration(voters []string) raft.Configuration {
	var c raft.Configuration
	for _, s := range voters {
		c.Servers = append(c.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(s), Address: raft.ServerAddress(s),
		})
	}
	return c
}
