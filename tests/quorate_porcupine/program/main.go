// Judges a history of commands and transactions: could one correct store, which does one after the
// other, have answered so?
//
// Standard input is the history, one operation as JSON per line (see operation.go).  Keys that are
// in no transaction together, not even by way of others, do not touch each other: each group of keys
// is judged by itself.  The first line of the answer begins with "ok", "illegal" or "undecided"; the
// exit status says the same (0, 1, 3), and 2 that the input is no history.
package main

import (
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
)

const (
	exitOK        = 0
	exitIllegal   = 1
	exitBadInput  = 2
	exitUndecided = 3
)

func main() {
	statesMax := flag.Int("states", 4_000_000, "give a group of keys up after so many states; each takes a few hundred bytes")
	flag.Parse()
	history, err := readHistory(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitBadInput)
	}
	os.Exit(judge(history, *statesMax))
}

func judge(history []operation, statesMax int) int {
	undecided := []string{}
	keys := 0
	for _, group := range groupsOf(history) {
		keys += len(keysOf(group))
		noteSeen(group)
		switch check(group, absentState, statesMax) {
		case illegal:
			shown, first := minimalWindow(group, statesMax)
			fmt.Printf("illegal: %s: no order explains every answer\n", named(shown))
			fmt.Print(describe(shown, first))
			return exitIllegal
		case tooHard:
			undecided = append(undecided, named(group))
		}
	}
	if len(undecided) > 0 {
		fmt.Printf("undecided: %s: more than %d states; fewer commands at once, or of unknown outcome, on the same keys\n", strings.Join(undecided, "; "), statesMax)
		return exitUndecided
	}
	fmt.Printf("ok: %d operations on %d keys\n", len(history), keys)
	return exitOK
}

// The operations of each group of keys; groups by their first key.
func groupsOf(history []operation) [][]operation {
	leader := map[string]string{}
	var find func(key string) string
	find = func(key string) string {
		up, known := leader[key]
		if !known || up == key {
			leader[key] = key
			return key
		}
		leader[key] = find(up)
		return leader[key]
	}
	for _, each := range history {
		first := find(each.all()[0].Key)
		for _, step := range each.all() {
			// The smaller name leads.
			one, other := find(first), find(step.Key)
			leader[max(one, other)] = min(one, other)
		}
	}
	groups := map[string][]operation{}
	for _, each := range history {
		of := find(each.all()[0].Key)
		groups[of] = append(groups[of], each)
	}
	names := make([]string, 0, len(groups))
	for name := range groups {
		names = append(names, name)
	}
	sort.Strings(names)
	found := make([][]operation, 0, len(groups))
	for _, name := range names {
		found = append(found, groups[name])
	}
	return found
}

func named(operations []operation) string {
	keys := keysOf(operations)
	if len(keys) == 1 {
		return fmt.Sprintf("key %q", keys[0])
	}
	return fmt.Sprintf("keys %q", keys)
}
