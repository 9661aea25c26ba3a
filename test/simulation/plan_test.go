package simulation

import (
	"fmt"
	"time"
)

type plan struct {
	seed    uint64
	nodes   int // machines
	first   int // those that are switched on at the beginning
	lasts   time.Duration
	actions []action
}

type action struct {
	at   time.Duration
	name string
	do   func(w *world)
}

func (a action) String() string { return fmt.Sprintf("%s at %s", a.name, a.at) }
