package main

import (
	"hash/maphash"
	"sort"
	"strconv"

	"github.com/anishathalye/porcupine"
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

var (
	absentState = state{kind: absent}
	seed        = maphash.MakeSeed()
)

type verdict int

const (
	legal verdict = iota
	illegal
	tooHard
)

// Whether the operations of one key are linearizable from `first` on.
func check(operations []operation, first state, statesMax int) verdict {
	states := 0
	model := porcupine.Model{
		Init: func() interface{} { return first },
		Step: func(before, input, output interface{}) (bool, interface{}) {
			if states > statesMax {
				return false, before // ends the search soon; what it answers is not used
			}
			fits, after := step(before.(state), input.(operation))
			if fits {
				states++
			}
			return fits, after
		},
		Hash: func(of interface{}) uint64 {
			return maphash.String(seed, of.(state).value) + uint64(of.(state).kind)
		},
	}
	history := []porcupine.Operation{}
	for _, each := range withoutEcho(operations) {
		history = append(history, porcupine.Operation{
			ClientId: each.Client, Input: each, Call: each.Call, Return: each.end(),
		})
	}
	fits := porcupine.CheckOperations(model, history)
	switch {
	case fits:
		return legal
	case states > statesMax:
		return tooHard
	default:
		return illegal
	}
}

// The operations without reads that say nothing new.  A read of unknown outcome says nothing.  A
// read that was under way for the whole of another operation that saw or left the same value can
// always be put right behind that one.  A frozen agent makes many of them, and a search that tries
// each of them early and late does not end.
func withoutEcho(operations []operation) []operation {
	byEnd := append([]operation{}, operations...)
	sort.SliceStable(byEnd, func(i, j int) bool {
		if byEnd[i].end() != byEnd[j].end() {
			return byEnd[i].end() < byEnd[j].end()
		}
		return byEnd[i].Call > byEnd[j].Call
	})
	latestCall := map[string]int64{} // by value: of all that ended by now
	kept := []operation{}
	for _, each := range byEnd {
		if each.reads() && !each.answered() {
			continue
		}
		value, known := each.leaves()
		if !known {
			kept = append(kept, each)
			continue
		}
		call, seen := latestCall[value]
		if each.reads() && seen && call >= each.Call {
			continue
		}
		if !seen || each.Call > call {
			latestCall[value] = each.Call
		}
		kept = append(kept, each)
	}
	return kept
}

// What the key certainly holds right after the operation; "-" when it is absent, "=" before a value.
func (o operation) leaves() (string, bool) {
	switch {
	case !o.answered():
		return "", false
	case o.Kind == "DEL", o.Kind == "FLUSH", o.reads() && o.Result == nil:
		return "-", true
	case o.Kind == "GET", o.Kind == "INCR":
		return "=" + *o.Result, true
	case o.Kind == "SET", o.Kind == "SETNX" && o.Result != nil:
		return "=" + *o.Argument, true
	default:
		return "", false
	}
}

// Whether the answer fits the state, and the state after it.  Where states are known only in part,
// it allows at least what is possible.
func step(before state, o operation) (bool, state) {
	there := before.kind == present || before.kind == some
	switch o.Kind {
	case "GET":
		return stepGet(before, o)
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
		return stepIncr(before, o)
	}
	panic("unknown kind " + o.Kind) // readHistory lets none pass
}

func stepGet(before state, o operation) (bool, state) {
	switch {
	case !o.answered():
		return true, before
	case o.Result == nil:
		return before.kind == absent || before.kind == anything, absentState
	case before.kind == present:
		return before.value == *o.Result, before
	default:
		return before.kind != absent, state{present, *o.Result}
	}
}

func stepIncr(before state, o operation) (bool, state) {
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
	after := strconv.FormatInt(number+1, 10)
	return !o.answered() || after == *o.Result, state{present, after}
}
