// Judges a history of commands on single keys: could one correct store have answered so?
//
// Standard input is the history, one operation as JSON per line (see operation.go).  Each key is
// judged by itself: keys do not touch each other.  The first line of the answer begins with "ok",
// "illegal" or "undecided"; the exit status says the same (0, 1, 3), and 2 that the input is no
// history.
package main

import (
	"flag"
	"fmt"
	"os"
	"sort"
)

const (
	exitOK        = 0
	exitIllegal   = 1
	exitBadInput  = 2
	exitUndecided = 3
)

func main() {
	statesMax := flag.Int("states", 4_000_000, "give a key up after so many states; each takes a few hundred bytes")
	flag.Parse()
	history, err := readHistory(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitBadInput)
	}
	os.Exit(judge(history, *statesMax))
}

func judge(history []operation, statesMax int) int {
	byKey := map[string][]operation{}
	for _, each := range history {
		byKey[each.Key] = append(byKey[each.Key], each)
	}
	keys := make([]string, 0, len(byKey))
	for key := range byKey {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	undecided := []string{}
	for _, key := range keys {
		switch check(byKey[key], absentState, statesMax) {
		case illegal:
			shown, first := minimalWindow(byKey[key], statesMax)
			fmt.Printf("illegal: key %q: no order explains every answer\n", key)
			fmt.Print(describe(shown, first))
			return exitIllegal
		case tooHard:
			undecided = append(undecided, key)
		}
	}
	if len(undecided) > 0 {
		fmt.Printf("undecided: keys %q: more than %d states; fewer commands at once, or of unknown outcome, on one key\n", undecided, statesMax)
		return exitUndecided
	}
	fmt.Printf("ok: %d operations on %d keys\n", len(history), len(keys))
	return exitOK
}
