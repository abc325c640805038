package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var cases = []struct {
	name string
	body func()
}{
	{"connect", connects},
	{"pool", pools},
	{"concurrent callers", concurrentCallers},
	{"pipeline", pipelines},
	{"transaction", transactions},
	{"watch", watches},
	{"channels", channels},
	{"patterns", patterns},
	{"sharded", sharded},
	{"binary", binaries},
	{"big", big},
	{"scan", scans},
	{"expiry", expires},
	{"bits", bits},
	{"tls", speaksTLS},
	{"mutual tls", speaksMutualTLS},
	{"users", users},
	{"wrong password", wrongPassword},
	{"errors", replyErrors},
	{"kill", killed},
	{"restart", restarted},
}

func connects() {
	client := connect(func(all *redis.Options) { all.ClientName = "matrix" })
	same(good(client.FlushAll(ctx).Result()), "OK")
	same(good(client.Ping(ctx).Result()), "PONG")
	info := good(client.ClientInfo(ctx).Result())
	same(info.Name, "matrix")
	same(info.Resp, protocol)
	must(strings.HasPrefix(info.LibName, "go-redis"), "the library's name is %s", info.LibName)
	same(good(client.Set(ctx, "word", "stone", 0).Result()), "OK")
	same(good(client.Get(ctx, "word").Result()), "stone")
	same[error](client.Get(ctx, "absent").Err(), redis.Nil)
	both := good(client.MGet(ctx, "word", "absent").Result())
	must(both[0] == "stone" && both[1] == nil, "MGET gives %v", both)
}

func callers(client *redis.Client) (connections int) {
	var group sync.WaitGroup
	var failures atomic.Int64
	seen := sync.Map{}
	for caller := range 32 {
		group.Go(func() {
			key := fmt.Sprint("caller:", caller)
			for round := range 50 {
				err := client.Incr(ctx, "count").Err()
				err = errors.Join(err, client.Set(ctx, key, round, 0).Err())
				found, wrong := client.Get(ctx, key).Int()
				id, unknown := client.ClientID(ctx).Result()
				seen.Store(id, true)
				if errors.Join(err, wrong, unknown) != nil || found != round {
					failures.Add(1)
				}
			}
		})
	}
	group.Wait()
	same(failures.Load(), 0)
	same(good(client.Get(ctx, "count").Int()), 1600)
	same(good(client.Del(ctx, "count").Result()), 1)
	seen.Range(func(any, any) bool { connections++; return true })
	return connections
}

func pools() {
	connections := callers(connect(func(all *redis.Options) { all.PoolSize = 8 }))
	must(connections > 1 && connections <= 8, "%d connections", connections)
}

func concurrentCallers() { same(callers(connect(single)), 1) }

func pipelines() {
	client := connect(nil)
	pipeline := client.Pipeline()
	pipeline.Set(ctx, "text", "no number", 0)
	wrong := pipeline.Incr(ctx, "text")
	var found []*redis.StringCmd
	for number := range 1_000 {
		key := fmt.Sprint("piped:", number)
		pipeline.Set(ctx, key, number, 0)
		found = append(found, pipeline.Get(ctx, key))
	}
	_, err := pipeline.Exec(ctx)
	refused(err, "ERR value is not an integer")
	refused(wrong.Err(), "ERR value is not an integer")
	for number, reply := range found {
		same(good(reply.Int()), number)
	}
}

func transactions() {
	client := connect(nil)
	transaction := client.TxPipeline()
	transaction.Set(ctx, "{t}:a", 1, 0)
	count := transaction.Incr(ctx, "{t}:a")
	transaction.Set(ctx, "elsewhere", "x", 0)
	good(transaction.Exec(ctx))
	same(good(count.Result()), 2)
	transaction = client.TxPipeline()
	transaction.Set(ctx, "{t}:a", 9, 0)
	transaction.Do(ctx, "nonsense")
	_, err := transaction.Exec(ctx)
	must(err != nil, "a transaction with an unknown command is carried out")
	same(good(client.Get(ctx, "{t}:a").Result()), "2")
}

func watches() {
	client, other := connect(nil), connect(nil)
	attempts := 0
	add := func(transaction *redis.Tx) error {
		attempts++
		now, err := transaction.Get(ctx, "watched").Int()
		if err != nil && err != redis.Nil {
			return err
		}
		if attempts == 1 {
			good(other.Set(ctx, "watched", 10, 0).Result())
		}
		_, err = transaction.TxPipelined(ctx, func(commands redis.Pipeliner) error {
			return commands.Set(ctx, "watched", now+1, 0).Err()
		})
		return err
	}
	same[error](client.Watch(ctx, add, "watched"), redis.TxFailedErr)
	same(client.Watch(ctx, add, "watched"), nil)
	same(good(other.Get(ctx, "watched").Int()), 11)
}

// hears takes the next message of a subscription.
func hears(messages <-chan *redis.Message, channel, text string) {
	select {
	case message := <-messages:
		same(message.Channel, channel)
		same(message.Payload, text)
	case <-time.After(patience):
		must(false, "%s was not heard", text)
	}
}

func channels() {
	client, other := connect(nil), connect(nil)
	listener := client.Subscribe(ctx, "news", "weather")
	defer listener.Close()
	good(listener.Receive(ctx))
	good(listener.Receive(ctx))
	messages := listener.Channel()
	same(good(other.Publish(ctx, "news", "one").Result()), 1)
	same(good(other.Publish(ctx, "weather", "two").Result()), 1)
	hears(messages, "news", "one")
	hears(messages, "weather", "two")
	same(listener.Unsubscribe(ctx, "news"), nil)
	until("the end of a subscription", func() bool { return good(other.Publish(ctx, "news", "three").Result()) == 0 })
}

func patterns() {
	client, other := connect(nil), connect(nil)
	listener := client.PSubscribe(ctx, "old*")
	defer listener.Close()
	good(listener.Receive(ctx))
	same(good(other.Publish(ctx, "older", []byte{0, 255}).Result()), 1)
	hears(listener.Channel(), "older", "\x00\xff")
}

func sharded() {
	client, other := connect(nil), connect(nil)
	listener := client.SSubscribe(ctx, "part")
	defer listener.Close()
	good(listener.Receive(ctx))
	same(good(other.SPublish(ctx, "part", "one").Result()), 1)
	hears(listener.Channel(), "part", "one")
}

func binaries() {
	client := connect(nil)
	all := make([]byte, 256)
	for at := range all {
		all[at] = byte(at)
	}
	same(good(client.Set(ctx, string(all), all, 0).Result()), "OK")
	must(bytes.Equal(good(client.Get(ctx, string(all)).Bytes()), all), "the value has changed")
	same(good(client.GetRange(ctx, string(all), 10, 14).Result()), string(all[10:15]))
	same(good(client.Set(ctx, "", "", 0).Result()), "OK")
	same(good(client.Get(ctx, "").Result()), "")
}

func big() {
	client := connect(nil)
	value := make([]byte, 8<<20)
	for at := 0; at < len(value); at += 4 {
		binary.LittleEndian.PutUint32(value[at:], uint32(at)*2_654_435_761)
	}
	same(good(client.Set(ctx, "big", value, 0).Result()), "OK")
	same(good(client.StrLen(ctx, "big").Result()), int64(len(value)))
	must(bytes.Equal(good(client.Get(ctx, "big").Bytes()), value), "the value has changed")
	same(good(client.Del(ctx, "big").Result()), 1)
}

func scans() {
	client := connect(nil)
	var pairs []any
	for number := range 2_000 {
		pairs = append(pairs, fmt.Sprint("scanned:", number), number)
	}
	same(good(client.MSet(ctx, pairs...).Result()), "OK")
	found := map[string]bool{}
	keys := client.Scan(ctx, 0, "scanned:*", 100).Iterator()
	for keys.Next(ctx) {
		found[keys.Val()] = true
	}
	same(keys.Err(), nil)
	same(len(found), 2_000)
}

func expires() {
	client := connect(nil)
	same(good(client.Set(ctx, "brief", "x", 100*time.Second).Result()), "OK")
	left := good(client.TTL(ctx, "brief").Result())
	must(left > 0 && left <= 100*time.Second, "%v are left", left)
	same(good(client.Persist(ctx, "brief").Result()), true)
	same(good(client.TTL(ctx, "brief").Result()), -1)
	same(good(client.TTL(ctx, "absent").Result()), -2)
	same(good(client.PExpireAt(ctx, "brief", time.UnixMilli(1)).Result()), true)
	same[error](client.Get(ctx, "brief").Err(), redis.Nil)
	same(good(client.Set(ctx, "brief", "y", 20*time.Millisecond).Result()), "OK")
	until("the end of a key", func() bool { return client.Get(ctx, "brief").Err() == redis.Nil })
}

func bits() {
	client := connect(nil)
	same(good(client.SetBit(ctx, "bits", 7, 1).Result()), 0)
	same(good(client.GetBit(ctx, "bits", 7).Result()), 1)
	same(good(client.BitCount(ctx, "bits", nil).Result()), 1)
	same(good(client.BitPos(ctx, "bits", 1).Result()), 7)
	same(good(client.BitOpNot(ctx, "inverse", "bits").Result()), 1)
	same(good(client.BitCount(ctx, "inverse", nil).Result()), 7)
	same(good(client.BitField(ctx, "bits", "INCRBY", "u8", 0, 300).Result())[0], 45)
}

func file(name string) []byte { return good(os.ReadFile(filepath.Join(folder, name))) }

// overTLS trusts those whom the file tells, with the certificate called own, if any.
func overTLS(port, roots, name, own string) func(*redis.Options) {
	return func(all *redis.Options) {
		once(all)
		all.Addr = "127.0.0.1:" + port
		all.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: name}
		must(all.TLSConfig.RootCAs.AppendCertsFromPEM(file(roots)), "no certificate")
		if own != "" {
			pair := good(tls.X509KeyPair(file(own+".pem"), file(own+".key")))
			// Also where the server would not take it: it is the server that must refuse.
			all.TLSConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &pair, nil
			}
		}
	}
}

func speaksTLS() {
	client := connect(overTLS(tlsPort, "ca.pem", "localhost", ""))
	same(good(client.Set(ctx, "secret", "word", 0).Result()), "OK")
	same(good(client.Get(ctx, "secret").Result()), "word")
	stranger := connect(overTLS(tlsPort, "stranger.pem", "localhost", "")).Ping(ctx).Err()
	var unknown x509.UnknownAuthorityError
	must(errors.As(stranger, &unknown), "with other roots: %v", stranger)
	elsewhere := connect(overTLS(tlsPort, "ca.pem", "elsewhere", "")).Ping(ctx).Err()
	var wrong x509.HostnameError
	must(errors.As(elsewhere, &wrong), "with another name: %v", elsewhere)
}

func speaksMutualTLS() {
	friend := connect(overTLS(mutualPort, "ca.pem", "localhost", "friend"))
	same(good(friend.Ping(ctx).Result()), "PONG")
	for _, own := range []string{"", "foe"} {
		err := connect(overTLS(mutualPort, "ca.pem", "localhost", own)).Ping(ctx).Err()
		must(err != nil && strings.Contains(err.Error(), "tls:"), "with certificate '%s': %v", own, err)
	}
}

func users() {
	client := connect(nil)
	rules := []string{"reset", "on", ">pass", "~open:*", "+@read", "+@connection"}
	same(good(client.ACLSetUser(ctx, "reader", rules...).Result()), "OK")
	same(good(client.MSet(ctx, "open:a", 1, "closed:a", 2).Result()), "OK")
	reader := connect(func(all *redis.Options) { all.Username, all.Password = "reader", "pass" })
	same(good(reader.Get(ctx, "open:a").Result()), "1")
	for _, err := range []error{
		reader.Get(ctx, "closed:a").Err(), reader.Set(ctx, "open:a", 2, 0).Err(), reader.ACLWhoAmI(ctx).Err(),
	} {
		refused(err, "NOPERM")
		must(redis.IsPermissionError(err), "%v is no error of permission", err)
	}
}

func wrongPassword() {
	client := connect(func(all *redis.Options) {
		once(all)
		all.Username, all.Password = "reader", "wrong"
	})
	err := client.Ping(ctx).Err()
	must(err != nil && strings.Contains(err.Error(), "WRONGPASS"), "with a wrong password: %v", err)
}

func replyErrors() {
	client := connect(nil)
	same(good(client.Set(ctx, "text", "no number", 0).Result()), "OK")
	refused(client.Incr(ctx, "text").Err(), "ERR value is not an integer")
	refused(client.Do(ctx, "get").Err(), "ERR wrong number of arguments")
	refused(client.Do(ctx, "nonsense", "x").Err(), "ERR unknown command")
	refused(client.SetRange(ctx, "text", -1, "x").Err(), "ERR offset is out of range")
	refused(client.Do(ctx, "SELECT", 100_000).Err(), "ERR DB index is out of range")
	same(good(client.Get(ctx, "text").Result()), "no number")
}

func killed() {
	client, other := connect(single), connect(nil)
	listener := client.Subscribe(ctx, "after")
	defer listener.Close()
	good(listener.Receive(ctx))
	messages := listener.Channel()
	old := good(client.ClientID(ctx).Result())
	same(good(other.ClientKillByFilter(ctx, "ID", fmt.Sprint(old)).Result()), 1)
	same(good(other.ClientKillByFilter(ctx, "TYPE", "pubsub").Result()), 1)
	same(good(client.Set(ctx, "after", "kill", 0).Result()), "OK")
	must(good(client.ClientID(ctx).Result()) != old, "the connection is the same")
	until("a new subscription", func() bool { return good(other.Publish(ctx, "after", "kill").Result()) == 1 })
	hears(messages, "after", "kill")
}

func restarted() {
	client := connect(nil)
	back := make(chan struct{})
	var last atomic.Int64
	var group sync.WaitGroup
	acknowledged := sync.Map{}
	for range 8 {
		group.Go(func() {
			for {
				select {
				case <-back:
					return
				default:
				}
				number := last.Add(1)
				if client.Set(ctx, fmt.Sprint("kept:", number), number, 0).Err() == nil {
					acknowledged.Store(number, true)
				}
			}
		})
	}
	until("some writing", func() bool { return last.Load() > 100 })
	restart()
	close(back)
	group.Wait()
	count := 0
	acknowledged.Range(func(number, _ any) bool {
		same(good(client.Get(ctx, fmt.Sprint("kept:", number)).Int64()), number.(int64))
		count++
		return true
	})
	must(count >= 90, "only %d were acknowledged", count)
}
