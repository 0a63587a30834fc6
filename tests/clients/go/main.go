// Counters through go-redis, as its manual shows it.
//
//	PROGRAM HOST:PORT,HOST:PORT PREFIX EVERY_MS shared|each
//
// The client serves all workers, whatever the last word says.  The contract of this program and its
// siblings in other languages is in tests/clients/README.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	workers  = 4
	keysEach = 8
	endMax   = 15 * time.Second
)

var digits = regexp.MustCompile(`\d+`)

type tally struct {
	mutex       sync.Mutex
	commands    int
	failed      int
	failedAtEnd int
	wrong       []string
	longest     time.Duration
	unwritable  time.Duration
	errors      map[string]int
	begun       int
	finished    int
}

func (all *tally) command(took time.Duration, err error, isLast bool) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	all.commands++
	all.longest = max(all.longest, took)
	if err == nil {
		return
	}
	all.failed++
	if isLast {
		all.failedAtEnd++
	}
	said := digits.ReplaceAllString(fmt.Sprintf("%T: %v", err, err), "N")
	all.errors[said[:min(len(said), 100)]]++
}

func (all *tally) report() map[string]any {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	examples := append([]string{}, all.wrong[:min(len(all.wrong), 5)]...)
	return map[string]any{
		"commands":      all.commands,
		"failed":        all.failed,
		"failed_at_end": all.failedAtEnd,
		"wrong":         len(all.wrong),
		"longest_ms":    milliseconds(all.longest),
		"unwritable_ms": milliseconds(all.unwritable),
		"unfinished":    workers - all.finished,
		"errors":        all.errors,
		"examples":      examples,
	}
}

func milliseconds(span time.Duration) int {
	return int(math.Round(span.Seconds() * 1000))
}

// counter is one key: what was last acknowledged, and what may or may not have taken effect.
type counter struct {
	key   string
	last  string
	maybe map[string]bool
	since time.Time
}

type worker struct {
	client *redis.ClusterClient
	every  time.Duration
	all    *tally
	ending chan struct{}
	keys   []*counter
	number int
	value  int
	fails  bool
}

func (one *worker) isEnding() bool {
	select {
	case <-one.ending:
		return true
	default:
		return false
	}
}

func (one *worker) pause() {
	select {
	case <-one.ending:
	case <-time.After(one.every):
	}
}

// run writes ever larger numbers to keys of its own, in turn, and reads back each of them.
func (one *worker) run() {
	begun := false
	for isLast := false; !isLast; {
		isLast = one.isEnding() // one whole round after the end was asked for
		one.fails = false
		for _, each := range one.keys {
			written := one.set(each, isLast)
			one.pause()
			for !written && !one.isEnding() {
				written = one.set(each, isLast)
				one.pause()
			}
			if written && !begun {
				begun = true
				one.begin()
			}
			one.get(each, isLast)
			one.pause()
		}
		if !one.fails {
			fmt.Printf("round %d\n", one.number)
		}
	}
	one.all.mutex.Lock()
	one.all.finished++
	one.all.mutex.Unlock()
}

func (one *worker) begin() {
	one.all.mutex.Lock()
	defer one.all.mutex.Unlock()
	one.all.begun++
	if one.all.begun == workers {
		fmt.Println("ready")
	}
}

func (one *worker) set(each *counter, isLast bool) bool {
	one.value++
	value := strconv.Itoa(one.value)
	began := time.Now()
	if each.since.IsZero() {
		each.since = began
	}
	err := one.client.Set(context.Background(), each.key, value, 0).Err()
	ended := time.Now()
	one.all.command(ended.Sub(began), err, isLast)
	if err == nil || isLast {
		one.all.mutex.Lock()
		one.all.unwritable = max(one.all.unwritable, ended.Sub(each.since))
		one.all.mutex.Unlock()
	}
	if err != nil {
		each.maybe[value] = true
		one.fails = true
		return false
	}
	each.last = value
	each.since = time.Time{}
	return true
}

func (one *worker) get(each *counter, isLast bool) {
	began := time.Now()
	found, err := one.client.Get(context.Background(), each.key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	one.all.command(time.Since(began), err, isLast)
	one.fails = one.fails || err != nil
	if err != nil || found == each.last {
		return
	}
	if each.maybe[found] {
		// A write of which nobody knew whether it took effect: it did, and only once.
		delete(each.maybe, found)
		each.last = found
		return
	}
	one.all.mutex.Lock()
	one.all.wrong = append(one.all.wrong, fmt.Sprintf("%s: %q instead of %q", each.key, found, each.last))
	one.all.mutex.Unlock()
}

func main() {
	prefix := os.Args[2]
	everyMs, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(os.Args[1], ",")})
	all := &tally{errors: map[string]int{}}
	ending := make(chan struct{})
	var running sync.WaitGroup
	for number := range workers {
		one := &worker{number: number, client: client, every: time.Duration(everyMs) * time.Millisecond, all: all, ending: ending}
		for key := range keysEach {
			name := fmt.Sprintf("%s-%d-%d", prefix, number, key)
			one.keys = append(one.keys, &counter{key: name, maybe: map[string]bool{}})
		}
		running.Go(one.run)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until whoever started this closes it
	close(ending)
	finished := make(chan struct{})
	go func() {
		running.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(endMax):
	}
	text, err := json.Marshal(all.report())
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
