"""What a program with redis-py does, against the server at the port in the first argument; over TLS if a file with
the roots of certificates is the second.

Every check is an assertion; the last line is printed only if all of them held.
"""

import sys
import threading

import redis


def strings(client):
    assert client.set("word", "stone") is True
    assert client.get("word") == b"stone"
    assert client.set("word", "other", nx=True) is None
    assert client.set("word", "third", xx=True, get=True) == b"stone"
    assert client.getrange("word", 0, 1) == b"th"
    assert client.append("word", "!") == 6
    assert client.strlen("word") == 6
    assert client.incr("count", 5) == 5
    assert client.decr("count", 2) == 3
    assert abs(client.incrbyfloat("sum", 0.25) - 0.25) < 1e-9
    assert client.mset({"one": 1, "two": 2}) is True
    assert client.mget("one", "absent", "two") == [b"1", None, b"2"]
    assert client.setrange("word", 3, "RD") == 6
    assert client.setbit("bits", 7, 1) == 0
    assert client.bitcount("bits") == 1
    assert client.getdel("one") == b"1"
    assert client.delete("one", "two") == 1
    assert client.exists("word", "two") == 1
    assert client.type("word") in (b"string", "string")
    binary = bytes(range(256)) * 16
    assert client.set(binary[:200], binary) and client.get(binary[:200]) == binary


def expiry(client):
    assert client.set("brief", "x", ex=100)
    assert 0 < client.ttl("brief") <= 100
    assert client.persist("brief") and client.ttl("brief") == -1
    assert client.expire("brief", 50) and 0 < client.pttl("brief") <= 50_000
    assert client.ttl("absent") == -2
    assert client.pexpireat("brief", 1) and client.get("brief") is None


def pipelines(client):
    with client.pipeline(transaction=False) as pipeline:
        for number in range(2_000):
            pipeline.set(f"piped:{number}", number)
        assert all(pipeline.execute())
    with client.pipeline(transaction=True) as pipeline:
        pipeline.set("{t}:a", 1).incr("{t}:a").get("{t}:a")
        assert pipeline.execute() == [True, 2, b"2"]
    with client.pipeline(transaction=False) as pipeline:
        pipeline.set("text", "no number").incr("text").get("text")
        first, second, third = pipeline.execute(raise_on_error=False)
        assert first is True and third == b"no number"
        assert isinstance(second, redis.ResponseError) and "not an integer" in str(second)


def transactions(client, other):
    client.set("{w}:watched", 1)
    with client.pipeline() as pipeline:
        pipeline.watch("{w}:watched")
        value = int(pipeline.get("{w}:watched"))
        other.set("{w}:watched", 100)
        pipeline.multi()
        pipeline.set("{w}:watched", value + 1)
        try:
            pipeline.execute()
        except redis.WatchError:
            pass
        else:
            raise AssertionError("a changed key was not noticed")
    assert client.get("{w}:watched") == b"100"

    def raise_by_one(pipeline):
        value = int(pipeline.get("{w}:watched"))
        pipeline.multi()
        pipeline.set("{w}:watched", value + 1)

    assert client.transaction(raise_by_one, "{w}:watched") == [True]
    threads = [
        threading.Thread(target=lambda: [client.transaction(raise_by_one, "{w}:watched") for _ in range(20)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("{w}:watched") == b"181", client.get("{w}:watched")


def messages(client, other):
    subscriber = client.pubsub()
    subscriber.subscribe("news")
    subscriber.psubscribe("old*")
    confirmed = [subscriber.get_message(timeout=30) for _ in range(2)]
    assert [message["type"] for message in confirmed] == ["subscribe", "psubscribe"], confirmed
    assert other.publish("news", "one") == 1
    assert other.publish("older", "two") == 1
    assert other.publish("nobody", "three") == 0
    first, second = subscriber.get_message(timeout=30), subscriber.get_message(timeout=30)
    assert (first["type"], first["channel"], first["data"]) == ("message", b"news", b"one"), first
    assert (second["type"], second["pattern"], second["data"]) == ("pmessage", b"old*", b"two"), second
    subscriber.unsubscribe("news")
    assert subscriber.get_message(timeout=30)["type"] == "unsubscribe"
    assert other.publish("news", "late") == 0
    subscriber.close()


def connections_of_all_shards(client, other):
    """Connections are dealt to the shards by the kernel: a dozen are surely not all at one."""
    listeners = []
    for _ in range(12):
        listener = client.pubsub()
        listener.subscribe("crowd")
        assert listener.get_message(timeout=30)["type"] == "subscribe"
        listeners.append(listener)
    assert other.publish("crowd", "all") == 12
    assert other.pubsub_numsub("crowd") == [(b"crowd", 12)]
    assert other.pubsub_channels() == [b"crowd"]
    # The asking connection, too; connections that were closed just now may still be listed.
    assert len(client.client_list()) >= 13
    assert len(client.client_list(_type="pubsub")) == 12
    assert client.info("clients")["pubsub_clients"] == 12
    for listener in listeners:
        assert listener.get_message(timeout=30)["data"] == b"all"
    assert client.client_kill_filter(_type="pubsub") == 12
    for listener in listeners:
        listener.close()


def scans(client):
    found = set(client.scan_iter(match="piped:*", count=100))
    assert len(found) == 2_000, len(found)
    assert client.dbsize() >= 2_000
    assert client.info("keyspace")["db0"]["keys"] == client.dbsize()


def errors(client):
    for command, expected in [
        (("GET",), "wrong number of arguments"),
        (("NOSUCHCOMMAND", "x"), "unknown command"),
        (("SET", "a", "b", "EX", "0"), "invalid expire"),
        (("SET", "a", "b", "BOGUS"), "syntax error"),
        (("SELECT", "999"), "out of range"),
    ]:
        try:
            client.execute_command(*command)
        except redis.ResponseError as error:
            assert expected in str(error), (command, str(error))
        else:
            raise AssertionError(f"{command} was not refused")
    assert client.ping()


def decoding(server, protocol):
    raw = redis.Redis(**server, protocol=protocol)
    raw.set("binary", b"\xff\xfe")
    decoded = redis.Redis(**server, protocol=protocol, decode_responses=True)
    try:
        decoded.get("binary")
    except UnicodeDecodeError:
        pass
    else:
        raise AssertionError("bytes that are no text were decoded")
    # The connection is in step after the failed decoding.
    assert decoded.set("text", "grüße") and decoded.get("text") == "grüße"


def copies(server, other):
    """Client-side caching: this client asks its connection what has come before it uses a copy."""
    try:
        from redis.cache import CacheConfig
    except ImportError:
        return
    client = redis.Redis(**server, protocol=3, cache_config=CacheConfig())
    for number in range(20):
        assert other.set(f"copied:{number}", 1)
        assert client.get(f"copied:{number}") == b"1"
    assert other.info("stats")["tracking_total_keys"] >= 20
    for number in range(20):
        other.set(f"copied:{number}", 2)
    for number in range(20):
        for _ in range(1_000_000):
            if client.get(f"copied:{number}") == b"2":
                break
        else:
            raise AssertionError(f"the copy of copied:{number} stays")
    client.close()


def introspection(client):
    assert client.info()["server_name"] == "tierstone"
    assert client.client_setname("check") and client.client_getname() in (b"check", "check")
    assert any(entry["name"] == "check" for entry in client.client_list())
    assert "durability" in client.config_get("durability")
    assert client.echo("x") == b"x"
    assert len(client.time()) == 2
    assert client.command_count() > 50


def main():
    server = {"port": int(sys.argv[1])}
    if len(sys.argv) > 2:
        server.update(ssl=True, ssl_ca_certs=sys.argv[2])
    for protocol in (2, 3):
        client, other = (redis.Redis(**server, protocol=protocol) for _ in range(2))
        client.flushall()
        strings(client)
        expiry(client)
        pipelines(client)
        transactions(client, other)
        messages(client, other)
        connections_of_all_shards(client, other)
        scans(client)
        errors(client)
        decoding(server, protocol)
        introspection(client)
        copies(server, other)
        single = redis.Redis(**server, protocol=protocol, single_connection_client=True)
        single.select(5)
        assert single.set("here", 1) and not client.exists("here")
    print("all checks passed")


main()
