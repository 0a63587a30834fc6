package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// One command of one client.  Times are nanoseconds of one clock.  An operation of unknown outcome
// has no return time: it may take effect at any moment after its call, or never.
type operation struct {
	Client   int     `json:"client"`
	Kind     string  `json:"kind"` // GET, SET, SETNX, DEL, INCR; FLUSH removes the key, whatever it held
	Key      string  `json:"key"`
	Argument *string `json:"argument"` // what SET and SETNX write
	Result   *string `json:"result"`   // null: nothing was there (GET), it was (SETNX)
	Call     int64   `json:"call"`
	Return   *int64  `json:"return"`
	Outcome  string  `json:"outcome"` // ok or unknown
}

func (o operation) answered() bool { return o.Outcome == "ok" }

func (o operation) end() int64 {
	if o.answered() {
		return *o.Return
	}
	return math.MaxInt64
}

func (o operation) reads() bool { return o.Kind == "GET" }

func (o operation) unanswered() operation {
	o.Outcome, o.Result, o.Return = "unknown", nil, nil
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
		if problem := read.problem(); problem != "" {
			return nil, fmt.Errorf("line %d: %s: %s", number, problem, lines.Text())
		}
		history = append(history, read)
	}
	return history, lines.Err()
}

func (o operation) problem() string {
	switch o.Kind {
	case "GET", "DEL", "INCR", "FLUSH":
	case "SET", "SETNX":
		if o.Argument == nil {
			return o.Kind + " needs an argument"
		}
	default:
		return fmt.Sprintf("kind %q is none of GET, SET, SETNX, DEL, INCR, FLUSH", o.Kind)
	}
	switch o.Outcome {
	case "ok":
		if o.Return == nil || *o.Return < o.Call {
			return "an answered operation returns at or after its call"
		}
		if o.Result == nil && (o.Kind == "DEL" || o.Kind == "INCR") {
			return o.Kind + " has a result"
		}
	case "unknown":
		if o.Return != nil {
			return "an operation of unknown outcome has no return time"
		}
	default:
		return fmt.Sprintf("outcome %q is neither ok nor unknown", o.Outcome)
	}
	return ""
}
