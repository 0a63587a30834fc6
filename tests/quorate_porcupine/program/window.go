package main

import (
	"fmt"
	"sort"
	"strings"
)

// A small part of the illegal `operations` of one key that is illegal by itself, and the state it
// begins in.  It ends with the answer that broke the history, leaves out what lies long before, and
// reads that are not needed to see it.
func minimalWindow(operations []operation, statesMax int) ([]operation, state) {
	isIllegal := func(part []operation, first state) bool {
		return check(part, first, statesMax) == illegal
	}
	shown, first := shortestPrefix(operations, isIllegal), absentState
	if cut := latestBeginning(shown, isIllegal); cut != nil {
		shown, first = cut, state{kind: anything}
	}
	if len(shown) <= 400 {
		shown = withoutNeedlessReads(shown, first, isIllegal)
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

// The part after the latest moment at which no answered write was under way and from which on it is
// illegal whatever the key held then; nil when there is none.
func latestBeginning(operations []operation, isIllegal judgement) []operation {
	moments := []int64{}
	for _, each := range operations {
		if quietAt(operations, each.Call) {
			moments = append(moments, each.Call)
		}
	}
	sort.Slice(moments, func(i, j int) bool { return moments[i] < moments[j] })
	from := func(moment int64) []operation {
		part := []operation{}
		for _, each := range operations {
			if each.Call >= moment || !each.answered() {
				part = append(part, each)
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

func quietAt(operations []operation, moment int64) bool {
	for _, each := range operations {
		if each.answered() && !each.reads() && each.Call < moment && each.end() >= moment {
			return false
		}
	}
	return true
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
	if first.kind == anything {
		text.WriteString("  whatever the key held before\n")
	} else {
		text.WriteString("  the key is absent at first\n")
	}
	for _, each := range operations {
		since := func(moment int64) float64 { return float64(moment-operations[0].Call) / 1e6 }
		argument, end, answer := "", "      never", "unknown"
		if each.Argument != nil {
			argument = fmt.Sprintf(" %q", *each.Argument)
		}
		if each.answered() {
			end, answer = fmt.Sprintf("%11.3f", since(each.end())), "nothing"
			if each.Result != nil {
				answer = fmt.Sprintf("%q", *each.Result)
			}
		}
		fmt.Fprintf(&text, "  %11.3f ..%s ms  client %d: %s%s -> %s\n",
			since(each.Call), end, each.Client, each.Kind, argument, answer)
	}
	return text.String()
}
