// Judges histories by Porcupine, so that our own checker has a second opinion.
//
// Reads one event a line as JSON, prints one verdict a history: its number and ok, illegal or unknown. The model is
// written here anew, from what Redis documents of the commands, and shares nothing with that of crates/sim.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/anishathalye/porcupine"
)

// A history without a verdict after so long is unknown.
const patience = 5 * time.Second

// step is one command on one key of an object.
type step struct {
	Key      int    `json:"key"`
	Op       string `json:"op"`
	Argument string `json:"argument"`
}

// event is what one client asked in one piece. Without results it may have happened once before its end, or not.
type event struct {
	History int      `json:"history"`
	Object  int      `json:"object"`
	Client  int      `json:"client"`
	Call    int64    `json:"call"`
	Return  int64    `json:"return"`
	Steps   []step   `json:"steps"`
	Results []string `json:"results"`
}

// object is the state: the keys that hold something, each with its value, in order.
type object string

// What stands between keys and values, and between pairs: values have characters up to 255 only, one a byte.
const within, between = "\ue000", "\ue001"

func parse(state object) map[int]string {
	keys := map[int]string{}
	for _, part := range strings.Split(string(state), between) {
		if number, value, found := strings.Cut(part, within); found {
			key, err := strconv.Atoi(number)
			if err != nil {
				panic(err)
			}
			keys[key] = value
		}
	}
	return keys
}

func format(keys map[int]string) object {
	parts := make([]string, 0, len(keys))
	for key, value := range keys {
		parts = append(parts, strconv.Itoa(key)+within+value)
	}
	sort.Strings(parts)
	return object(strings.Join(parts, between))
}

// apply carries out one command and gives its reply.
func apply(keys map[int]string, s step) string {
	value, found := keys[s.Key]
	switch s.Op {
	case "get":
		if !found {
			return "null"
		}
		return "$" + value
	case "set":
		keys[s.Key] = s.Argument
		return "+OK"
	case "setnx":
		if found {
			return "null"
		}
		keys[s.Key] = s.Argument
		return "+OK"
	case "append":
		keys[s.Key] = value + s.Argument
		return ":" + strconv.Itoa(utf8.RuneCountInString(keys[s.Key]))
	case "incrby":
		if !found {
			value = "0"
		}
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return "error"
		}
		amount, err := strconv.ParseInt(s.Argument, 10, 64)
		if err != nil {
			panic(err)
		}
		keys[s.Key] = strconv.FormatInt(number+amount, 10)
		return ":" + keys[s.Key]
	case "getdel":
		if !found {
			return "null"
		}
		delete(keys, s.Key)
		return "$" + value
	case "del":
		if !found {
			return ":0"
		}
		delete(keys, s.Key)
		return ":1"
	}
	panic("no such command: " + s.Op)
}

func model() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byObject := map[int][]porcupine.Operation{}
			for _, operation := range history {
				number := operation.Input.(event).Object
				byObject[number] = append(byObject[number], operation)
			}
			parts := make([][]porcupine.Operation, 0, len(byObject))
			for _, part := range byObject {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []interface{} { return []interface{}{object("")} },
		Step: func(state, input, output interface{}) []interface{} {
			before := state.(object)
			asked := input.(event)
			keys := parse(before)
			agrees := true
			for number, s := range asked.Steps {
				reply := apply(keys, s)
				if asked.Results != nil && reply != asked.Results[number] {
					agrees = false
				}
			}
			after := format(keys)
			switch {
			case asked.Results == nil:
				return []interface{}{before, after}
			case agrees:
				return []interface{}{after}
			}
			return nil
		},
		Equal: func(one, other interface{}) bool { return one.(object) == other.(object) },
	}
	return nondeterministic.ToModel()
}

func main() {
	histories := map[int][]porcupine.Operation{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<16), 1<<20)
	for lines.Scan() {
		var asked event
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if asked.Results != nil && len(asked.Results) != len(asked.Steps) {
			fmt.Fprintln(os.Stderr, "not one result for each step: "+lines.Text())
			os.Exit(2)
		}
		operation := porcupine.Operation{ClientId: asked.Client, Input: asked, Call: asked.Call, Return: asked.Return}
		histories[asked.History] = append(histories[asked.History], operation)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	numbers := make([]int, 0, len(histories))
	for number := range histories {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	judge := model()
	for _, number := range numbers {
		verdict := map[porcupine.CheckResult]string{
			porcupine.Ok: "ok", porcupine.Illegal: "illegal", porcupine.Unknown: "unknown",
		}[porcupine.CheckOperationsTimeout(judge, histories[number], patience)]
		fmt.Println(number, verdict)
	}
}
