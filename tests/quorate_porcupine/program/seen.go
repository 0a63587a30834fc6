package main

import "strings"

// Notes when operations of unknown outcome were seen to have happened.  One that alone can have written
// a value took effect before the first answer with that value came, so the search need not try it at
// every later moment.
func noteSeen(operations []operation) {
	writers := map[held][]*operation{}
	counted := map[string]bool{} // a number may have come about by counting
	for number := range operations {
		for _, step := range operations[number].all() {
			switch step.Kind {
			case "SET", "SETNX", "RPUSH":
				what := held{step.Key, *step.Argument}
				writers[what] = append(writers[what], &operations[number])
			case "INCR", "INCRBY":
				counted[step.Key] = true
			}
		}
	}
	see := func(key, value string, end int64) {
		found := writers[held{key, value}]
		if len(found) != 1 || counted[key] {
			return
		}
		// An answer before the question is the search's to refuse.
		if writer := found[0]; !writer.answered() && writer.Call <= end && end < writer.end() {
			writer.seen = end
		}
	}
	for _, each := range operations {
		if !each.answered() {
			continue
		}
		for _, step := range each.all() {
			switch {
			case !kinds[step.Kind].reads || step.Result == nil:
			case step.Kind == "LRANGE":
				for _, word := range strings.Fields(*step.Result) {
					see(step.Key, word, each.end())
				}
			default:
				see(step.Key, *step.Result, each.end())
			}
		}
	}
}
