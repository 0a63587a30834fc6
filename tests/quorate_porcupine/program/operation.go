package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// One command of one client, or a transaction of several.  Times are nanoseconds of one clock.  An
// operation of unknown outcome has no return time: it may take effect at any moment after its call,
// or never.
type operation struct {
	Client   int         `json:"client"`
	Kind     string      `json:"kind"` // of `kinds`, or EXEC: its steps take effect at one moment
	Key      string      `json:"key"`
	Argument *string     `json:"argument"` // what SET, SETNX and RPUSH write, how much INCRBY adds
	Result   *string     `json:"result"`   // null: nothing was there (GET), it was (SETNX)
	Call     int64       `json:"call"`
	Return   *int64      `json:"return"`
	Outcome  string      `json:"outcome"` // ok or unknown
	Steps    []operation `json:"steps"`   // of EXEC: kind, key, argument and result of each

	seen int64 // when the first answer came that shows it happened, of an unknown outcome; 0: none
}

type kind struct {
	reads    bool // writes nothing
	argument bool // needs one
	result   bool // an answer is never null
	guards   bool // only in a transaction
}

// FLUSH removes the key, whatever it held.  Lists, of words without blanks, are told as their words
// with blanks between them: none is the same as an absent key.  UNCHANGED is the guard of a
// transaction: it takes effect only where the key holds what the result says, also when nobody knows
// whether it did.
var kinds = map[string]kind{
	"GET":       {reads: true},
	"LRANGE":    {reads: true, result: true},
	"UNCHANGED": {reads: true, guards: true},
	"SET":       {argument: true},
	"SETNX":     {argument: true},
	"RPUSH":     {argument: true, result: true},
	"INCR":      {result: true},
	"INCRBY":    {argument: true, result: true},
	"DEL":       {result: true},
	"FLUSH":     {},
}

func (o operation) answered() bool { return o.Outcome == "ok" }

// By when it took effect, if it did.
func (o operation) end() int64 {
	switch {
	case o.answered():
		return *o.Return
	case o.seen > 0:
		return o.seen
	default:
		return math.MaxInt64
	}
}

// What takes effect at its one moment, in this order.
func (o operation) all() []operation {
	if o.Kind == "EXEC" {
		return o.Steps
	}
	return []operation{o}
}

func (o operation) reads() bool {
	for _, each := range o.all() {
		if !kinds[each.Kind].reads {
			return false
		}
	}
	return true
}

// The same without its answer, seen or not; what guards it stays.
func (o operation) unanswered() operation {
	o.Outcome, o.Result, o.Return, o.seen = "unknown", nil, nil, 0
	steps := []operation{}
	for _, each := range o.Steps {
		each.Outcome = o.Outcome
		if !kinds[each.Kind].guards {
			each.Result = nil
		}
		steps = append(steps, each)
	}
	o.Steps = steps
	return o
}

func readHistory(source io.Reader) ([]operation, error) {
	lines := bufio.NewScanner(source)
	lines.Buffer(make([]byte, 0, 1<<16), 1<<26)
	history := []operation{}
	for number := 1; lines.Scan(); number++ {
		var read operation
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		for at := range read.Steps {
			read.Steps[at].Outcome = read.Outcome
		}
		if problem := read.problem(); problem != "" {
			return nil, fmt.Errorf("line %d: %s: %s", number, problem, lines.Text())
		}
		history = append(history, read)
	}
	return history, lines.Err()
}

func (o operation) problem() string {
	switch o.Outcome {
	case "ok":
		if o.Return == nil || *o.Return < o.Call {
			return "an answered operation returns at or after its call"
		}
	case "unknown":
		if o.Return != nil {
			return "an operation of unknown outcome has no return time"
		}
	default:
		return fmt.Sprintf("outcome %q is neither ok nor unknown", o.Outcome)
	}
	if o.Kind != "EXEC" && len(o.Steps) > 0 || o.Kind == "EXEC" && len(o.Steps) == 0 {
		return "EXEC has steps, and nothing else has"
	}
	for _, each := range o.all() {
		is, known := kinds[each.Kind]
		switch {
		case !known:
			return fmt.Sprintf("kind %q is not known", each.Kind)
		case is.guards && o.Kind != "EXEC":
			return each.Kind + " is part of a transaction"
		case is.argument && each.Argument == nil:
			return each.Kind + " needs an argument"
		case is.result && each.Result == nil && o.answered():
			return each.Kind + " has a result"
		}
	}
	return ""
}
