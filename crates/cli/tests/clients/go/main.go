// What a program with go-redis does.
//
// arguments: PORT TLS_PORT MUTUAL_PORT FOLDER PROTOCOL, where FOLDER has the certificates.
// The report: `ok CASE`, `skip CASE: reason`, `FAIL CASE: reason`; last `done`.
// `restart` asks whoever started the program to kill the server and start it again; a line of input says that it is back.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const patience = time.Minute

var (
	ctx                       = context.Background()
	port, tlsPort, mutualPort string
	folder                    string
	protocol                  int
	input                     = bufio.NewReader(os.Stdin)
	open                      []*redis.Client
)

// failed ends a case.
type failed string

func (text failed) Error() string { return string(text) }

// skipped ends a case that the client cannot do.
type skipped string

func must(condition bool, format string, words ...any) {
	if !condition {
		panic(failed(fmt.Sprintf(format, words...)))
	}
}

func same[T comparable](found, expected T) {
	must(found == expected, "found %v, expected %v", found, expected)
}

// good gives the value of a reply that is no error.
func good[T any](value T, err error) T {
	if err != nil {
		panic(failed("an error: " + err.Error()))
	}
	return value
}

func until(what string, condition func() bool) {
	for end := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		must(time.Now().Before(end), "%s did not come about", what)
	}
}

// refused asks for a reply that is an error of the server.
func refused(err error, beginning string) {
	_, isReply := err.(redis.Error)
	must(isReply && strings.HasPrefix(err.Error(), beginning), "expected %s, found %v", beginning, err)
}

func options() *redis.Options {
	return &redis.Options{
		Addr:     "127.0.0.1:" + port,
		Protocol: protocol,
		// What only one vendor's servers have.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// connect makes a client that is closed with the others at the end of the case.
func connect(change func(*redis.Options)) *redis.Client {
	all := options()
	if change != nil {
		change(all)
	}
	client := redis.NewClient(all)
	open = append(open, client)
	return client
}

// single has one connection only.
func single(all *redis.Options) { all.PoolSize = 1 }

// once gives up at the first failure.
func once(all *redis.Options) { all.MaxRetries, all.DialerRetries = -1, 1 }

func restart() {
	fmt.Println("restart")
	same(good(input.ReadString('\n')), "ready\n")
}

func run(name string, body func()) {
	defer func() {
		for _, client := range open {
			// A connection that is gone already is what some cases are about.
			_ = client.Close()
		}
		open = nil
		switch end := recover().(type) {
		case nil:
			fmt.Println("ok " + name)
		case skipped:
			fmt.Printf("skip %s: %s\n", name, string(end))
		default:
			fmt.Printf("FAIL %s: %s\n", name, strings.ReplaceAll(fmt.Sprint(end), "\n", " | "))
		}
	}()
	body()
}

func main() {
	port, tlsPort, mutualPort, folder = os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	protocol = good(strconv.Atoi(os.Args[5]))
	for _, one := range cases {
		run(one.name, one.body)
	}
	fmt.Println("done")
}
