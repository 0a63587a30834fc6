package main

import (
	"fmt"
	"sort"
	"strings"
)

// The share of the states that looking for a small part may take at a time: what is not found illegal
// within it stays larger.
const windowShare = 10

// A small part of the illegal `operations` of a group of keys that is illegal by itself, and the
// state it begins in.  It ends with the answer that broke the history, leaves out keys, what lies
// long before, and reads that are not needed to see it.
func minimalWindow(operations []operation, statesMax int) ([]operation, state) {
	isIllegal := func(part []operation, first state) bool {
		return check(part, first, statesMax) == illegal
	}
	soonIllegal := func(part []operation, first state) bool {
		return check(part, first, statesMax/windowShare) == illegal
	}
	shown, first := shortestPrefix(operations, isIllegal), absentState
	shown = withoutNeedlessKeys(shown, soonIllegal)
	if cut := latestBeginning(shown, soonIllegal); cut != nil {
		shown, first = cut, state{kind: anything}
	}
	if len(shown) <= 400 {
		shown = withoutNeedlessReads(shown, first, soonIllegal)
	}
	sort.SliceStable(shown, func(i, j int) bool { return shown[i].Call < shown[j].Call })
	return shown, first
}

type judgement func(part []operation, first state) bool

// What had happened when the first answer came that no order explains.
func shortestPrefix(operations []operation, isIllegal judgement) []operation {
	ends := []int64{}
	for _, each := range operations {
		if each.answered() {
			ends = append(ends, each.end())
		}
	}
	sort.Slice(ends, func(i, j int) bool { return ends[i] < ends[j] })
	// Whatever comes after an illegal prefix leaves it illegal: the first one is found by halving.
	at := sort.Search(len(ends)-1, func(index int) bool {
		return isIllegal(until(operations, ends[index]), absentState)
	})
	return until(operations, ends[at])
}

func until(operations []operation, moment int64) []operation {
	part := []operation{}
	for _, each := range operations {
		switch {
		case each.Call > moment:
		case each.end() <= moment:
			part = append(part, each)
		case !each.reads():
			part = append(part, each.unanswered())
		}
	}
	return part
}

// What was done to some of the keys could not have happened by itself either.
func withoutNeedlessKeys(operations []operation, isIllegal judgement) []operation {
	for _, key := range keysOf(operations) {
		rest := []operation{}
		for _, each := range operations {
			if left, some := each.without(key); some {
				rest = append(rest, left)
			}
		}
		if isIllegal(rest, absentState) {
			operations = rest
		}
	}
	return operations
}

func (o operation) without(key string) (operation, bool) {
	if o.Kind != "EXEC" {
		return o, o.Key != key
	}
	steps := []operation{}
	for _, each := range o.Steps {
		if each.Key != key {
			steps = append(steps, each)
		}
	}
	o.Steps = steps
	return o, len(steps) > 0
}

// The part after the latest moment from which on it is illegal whatever the keys held then; nil when
// there is none.  A write that was under way at the moment had taken effect or had not.
func latestBeginning(operations []operation, isIllegal judgement) []operation {
	moments := []int64{}
	for _, each := range operations {
		moments = append(moments, each.Call)
	}
	sort.Slice(moments, func(i, j int) bool { return moments[i] < moments[j] })
	from := func(moment int64) []operation {
		part := []operation{}
		for _, each := range operations {
			switch {
			case each.Call >= moment:
				part = append(part, each)
			case each.end() >= moment && !each.reads():
				part = append(part, each.unanswered())
			}
		}
		return part
	}
	after := sort.Search(len(moments), func(index int) bool {
		return !isIllegal(from(moments[index]), state{kind: anything})
	})
	if after == 0 {
		return nil
	}
	return from(moments[after-1])
}

func withoutNeedlessReads(operations []operation, first state, isIllegal judgement) []operation {
	kept := append([]operation{}, operations...)
	for index := len(kept) - 1; index >= 0; index-- {
		if !kept[index].reads() {
			continue
		}
		rest := append(append([]operation{}, kept[:index]...), kept[index+1:]...)
		if isIllegal(rest, first) {
			kept = rest
		}
	}
	return kept
}

// The window as a person reads it: times in milliseconds after its first call.
func describe(operations []operation, first state) string {
	var text strings.Builder
	keys := keysOf(operations)
	switch {
	case first.kind == anything && len(keys) == 1:
		text.WriteString("  whatever the key held before\n")
	case first.kind == anything:
		text.WriteString("  whatever the keys held before\n")
	case len(keys) == 1:
		text.WriteString("  the key is absent at first\n")
	default:
		text.WriteString("  the keys are absent at first\n")
	}
	for _, each := range operations {
		since := func(moment int64) float64 { return float64(moment-operations[0].Call) / 1e6 }
		end := "      never"
		if each.answered() {
			end = fmt.Sprintf("%11.3f", since(each.end()))
		}
		steps := []string{}
		for _, step := range each.all() {
			steps = append(steps, step.told(len(keys) > 1))
		}
		what := strings.Join(steps, ", ")
		if each.Kind == "EXEC" {
			what = "EXEC [" + what + "]"
		}
		fmt.Fprintf(&text, "  %11.3f ..%s ms  client %d: %s\n", since(each.Call), end, each.Client, what)
	}
	return text.String()
}

func (o operation) told(withKey bool) string {
	what, answer := o.Kind, "unknown"
	if withKey {
		what += " " + o.Key
	}
	if o.Argument != nil {
		what += fmt.Sprintf(" %q", *o.Argument)
	}
	switch {
	case o.Result != nil:
		answer = fmt.Sprintf("%q", *o.Result)
	case o.answered() || kinds[o.Kind].guards:
		answer = "nothing"
	}
	return what + " -> " + answer
}
