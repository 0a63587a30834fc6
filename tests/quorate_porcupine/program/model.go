package main

import (
	"hash/maphash"
	"slices"
	"sort"

	"github.com/anishathalye/porcupine"
)

type verdict int

const (
	legal verdict = iota
	illegal
	tooHard
)

// What is known of every key of a group, in the order of their names.  Never changed in place.
type states []state

var seed = maphash.MakeSeed()

func (s states) hash() uint64 {
	sum := uint64(0)
	for _, each := range s {
		sum = sum*1099511628211 + maphash.String(seed, each.value) + uint64(each.kind)
	}
	return sum
}

// A command or transaction as the search takes it: where in `states` each of its steps has its key.
type prepared struct {
	operation
	steps []operation
	at    []int
}

// Whether there is an order of the operations that explains every answer, when each key is in the
// state `first` before them.
func check(operations []operation, first state, statesMax int) verdict {
	place := map[string]int{}
	for _, key := range keysOf(operations) {
		place[key] = len(place)
	}
	tried := 0
	values := map[string]string{} // each value is kept once, however many states it is in
	model := porcupine.Model{
		Init: func() interface{} { return initial(len(place), first) },
		Step: func(before, input, output interface{}) (bool, interface{}) {
			if tried > statesMax {
				return false, before // ends the search soon; what it answers is not used
			}
			fits, after := take(before.(states), input.(prepared), values)
			if fits {
				tried++
			}
			return fits, after
		},
		Equal: func(one, other interface{}) bool { return slices.Equal(one.(states), other.(states)) },
		Hash:  func(of interface{}) uint64 { return of.(states).hash() },
	}
	history := []porcupine.Operation{}
	for _, each := range withoutEcho(operations) {
		input := prepared{operation: each, steps: each.all()}
		for _, step := range input.steps {
			input.at = append(input.at, place[step.Key])
		}
		history = append(history, porcupine.Operation{
			ClientId: each.Client, Input: input, Call: each.Call, Return: each.end(),
		})
	}
	fits := porcupine.CheckOperations(model, history)
	switch {
	case fits:
		return legal
	case tried > statesMax:
		return tooHard
	default:
		return illegal
	}
}

func initial(count int, first state) states {
	all := make(states, count)
	for at := range all {
		all[at] = first
	}
	return all
}

// All steps, or, of an operation of unknown outcome whose guard does not hold, none.
func take(before states, o prepared, values map[string]string) (bool, states) {
	after := slices.Clone(before)
	for number, each := range o.steps {
		at := o.at[number]
		fits, next := step(after[at], each)
		if !fits {
			return !o.answered(), before
		}
		known, there := values[next.value]
		if !there {
			known = next.value
			values[known] = known
		}
		next.value = known
		after[at] = next
	}
	return true, after
}

func keysOf(operations []operation) []string {
	found := map[string]bool{}
	for _, each := range operations {
		for _, step := range each.all() {
			found[step.Key] = true
		}
	}
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

type held struct{ key, value string }

// The operations without reads that say nothing new.  A read of unknown outcome says nothing.  A
// read of one key that was under way for the whole of another operation that saw or left the same
// value there can always be put right behind that one.  A frozen agent makes many of them, and a
// search that tries each of them early and late does not end.
func withoutEcho(operations []operation) []operation {
	byEnd := append([]operation{}, operations...)
	sort.SliceStable(byEnd, func(i, j int) bool {
		if byEnd[i].end() != byEnd[j].end() {
			return byEnd[i].end() < byEnd[j].end()
		}
		return byEnd[i].Call > byEnd[j].Call
	})
	latestCall := map[held]int64{} // of all that ended by now
	kept := []operation{}
	for _, each := range byEnd {
		if each.reads() && !each.answered() {
			continue
		}
		leaves := each.leaves()
		if each.reads() && len(leaves) == 1 && len(each.all()) == 1 {
			if call, seen := latestCall[leaves[0]]; seen && call >= each.Call {
				continue
			}
		}
		for _, what := range leaves {
			if call, seen := latestCall[what]; !seen || each.Call > call {
				latestCall[what] = each.Call
			}
		}
		kept = append(kept, each)
	}
	return kept
}

// What keys certainly hold right after the operation: "-" is absent, "=" stands before a value.
func (o operation) leaves() []held {
	if !o.answered() {
		return nil
	}
	values := map[string]string{}
	for _, each := range o.all() {
		value, known := each.leavesOne()
		if known {
			values[each.Key] = value
		} else if !kinds[each.Kind].reads {
			delete(values, each.Key)
		}
	}
	found := []held{}
	for key, value := range values {
		found = append(found, held{key, value})
	}
	return found
}

func (o operation) leavesOne() (string, bool) {
	switch {
	case o.Kind == "DEL", o.Kind == "FLUSH", kinds[o.Kind].reads && o.Result == nil, o.Kind == "LRANGE" && *o.Result == "":
		return "-", true
	case kinds[o.Kind].reads, o.Kind == "INCR", o.Kind == "INCRBY":
		return "=" + *o.Result, true
	case o.Kind == "SET", o.Kind == "SETNX" && o.Result != nil:
		return "=" + *o.Argument, true
	default:
		return "", false
	}
}
