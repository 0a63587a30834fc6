package main

import (
	"strconv"
	"strings"
)

// What is known of one key.  The last two occur only where a window begins in mid-history.
type state struct {
	kind  stateKind
	value string // of a present one
}

type stateKind byte

const (
	absent  stateKind = iota
	present           // with this value
	some              // present, the value is not known
	anything
)

var absentState = state{kind: absent}

// Whether the answer of one command fits its key's state, and the state after it.  Where states are
// known only in part, it allows at least what is possible.
func step(before state, o operation) (bool, state) {
	there := before.kind == present || before.kind == some
	switch o.Kind {
	case "GET":
		if !o.answered() {
			return true, before
		}
		return holds(before, o.Result)
	case "LRANGE":
		if !o.answered() {
			return true, before
		}
		if *o.Result == "" {
			return holds(before, nil)
		}
		return holds(before, o.Result)
	case "UNCHANGED":
		return holds(before, o.Result)
	case "SET":
		return true, state{present, *o.Argument}
	case "FLUSH":
		return true, absentState
	case "DEL":
		fits := !o.answered() || before.kind == anything || (*o.Result == "1") == there
		return fits, absentState
	case "SETNX":
		if !o.answered() {
			if before.kind == absent {
				return true, state{present, *o.Argument}
			}
			return true, before
		}
		if o.Result != nil {
			return !there, state{present, *o.Argument}
		}
		if before.kind == anything {
			return true, state{kind: some}
		}
		return there, before
	case "INCR":
		return stepAdd(before, 1, o)
	case "INCRBY":
		amount, err := strconv.ParseInt(*o.Argument, 10, 64)
		if err != nil {
			return !o.answered(), before // the command is refused
		}
		return stepAdd(before, amount, o)
	case "RPUSH":
		return stepPush(before, o)
	}
	panic("unknown kind " + o.Kind) // readHistory lets none pass
}

// Whether the key may hold just this (null: nothing), and what is known then.
func holds(before state, value *string) (bool, state) {
	switch {
	case value == nil:
		return before.kind == absent || before.kind == anything, absentState
	case before.kind == present:
		return before.value == *value, before
	default:
		return before.kind != absent, state{present, *value}
	}
}

func stepAdd(before state, amount int64, o operation) (bool, state) {
	if before.kind == some || before.kind == anything {
		if o.answered() {
			return true, state{present, *o.Result}
		}
		return true, state{kind: some}
	}
	number := int64(0)
	if before.kind == present {
		var err error
		if number, err = strconv.ParseInt(before.value, 10, 64); err != nil {
			return !o.answered(), before // the command is refused
		}
	}
	after := strconv.FormatInt(number+amount, 10)
	return !o.answered() || after == *o.Result, state{present, after}
}

func stepPush(before state, o operation) (bool, state) {
	after := *o.Argument
	switch before.kind {
	case some, anything:
		return true, state{kind: some}
	case present:
		after = before.value + " " + after
	}
	length := strconv.Itoa(strings.Count(after, " ") + 1)
	return !o.answered() || length == *o.Result, state{present, after}
}
