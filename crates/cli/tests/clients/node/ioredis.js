// What a program with ioredis does.
"use strict";

const { Redis, ReplyError } = require("ioredis");
const harness = require("./harness.js");
const { assert, failure, file, Heard, port, protocol, skip, until } = harness;

const QUICK = { retryStrategy: () => 10, maxRetriesPerRequest: null };

/** A client that is closed with the others at the end of the case. */
const open = [];
function connect(more = {}) {
  const client = new Redis({ host: "127.0.0.1", port, protocol, ...QUICK, ...more });
  // What goes wrong is seen by the command; without a listener it would be printed besides.
  client.on("error", () => {});
  open.push(client);
  return client;
}

/** One that gives up at once. */
const once = (more) => connect({ retryStrategy: null, maxRetriesPerRequest: 0, lazyConnect: true, ...more });

const tls = (more) => ({ tls: { ca: file("ca.pem"), servername: "localhost", ...more } });
const idOf = (client) => client.client("ID");

const cases = {
  async connect() {
    const client = connect({ connectionName: "matrix" });
    await client.flushall();
    assert.equal(await client.ping(), "PONG");
    const info = await client.client("INFO");
    assert.match(info, new RegExp(`name=matrix .*resp=${protocol} .*lib-name=ioredis`));
    assert.equal(await client.set("word", "stone"), "OK");
    assert.equal(await client.get("word"), "stone");
    assert.equal(await client.get("absent"), null);
    assert.deepEqual(await client.mget("word", "absent"), ["stone", null]);
    assert.equal(await client.quit(), "OK");
  },

  async pool() {
    skip("the client has no pool: a connection serves all callers");
  },

  async "concurrent callers"() {
    const client = connect({ enableAutoPipelining: true });
    const callers = Array.from({ length: 32 }, async (_, caller) => {
      for (let round = 0; round < 50; round += 1) {
        await client.incr("count");
        await client.set(`caller:${caller}`, round);
        assert.equal(await client.get(`caller:${caller}`), String(round));
      }
    });
    await Promise.all(callers);
    assert.equal(await client.get("count"), "1600");
  },

  async pipeline() {
    const client = connect();
    const pipeline = client.pipeline().set("text", "no number").incr("text");
    for (let number = 0; number < 1_000; number += 1) pipeline.set(`piped:${number}`, number).get(`piped:${number}`);
    const [first, second, ...rest] = await pipeline.exec();
    assert.deepEqual(first, [null, "OK"]);
    assert(second[0] instanceof ReplyError);
    rest.forEach(([error, reply], at) => {
      assert.equal(error, null);
      assert.equal(reply, at % 2 === 0 ? "OK" : String((at - 1) / 2));
    });
    assert.equal(rest.length, 2_000);
  },

  async transaction() {
    const client = connect();
    const done = await client.multi().set("{t}:a", 1).incr("{t}:a").set("elsewhere", "x").get("{t}:a").exec();
    assert.deepEqual(done.map(([error, reply]) => [error, reply]), [[null, "OK"], [null, 2], [null, "OK"], [null, "2"]]);
    const error = await failure(() => client.multi().set("{t}:a", 9).call("nonsense").exec());
    assert(error instanceof ReplyError);
    assert.match(error.message, /^EXECABORT/);
    assert.equal(await client.get("{t}:a"), "2");
  },

  async watch() {
    const [client, other] = [connect(), connect()];
    await client.watch("watched");
    await other.set("watched", 10);
    assert.equal(await client.multi().set("watched", 1).exec(), null);
    await client.watch("watched");
    const now = Number(await client.get("watched"));
    assert.deepEqual(await client.multi().set("watched", now + 1).exec(), [[null, "OK"]]);
    assert.equal(await other.get("watched"), "11");
  },

  async channels() {
    const [client, other, heard] = [connect(), connect(), new Heard()];
    client.on("message", (channel, text) => heard.note(channel, text));
    assert.equal(await client.subscribe("news", "weather"), 2);
    assert.equal(await other.publish("news", "one"), 1);
    assert.equal(await other.publish("weather", "two"), 1);
    await heard.are(["news", "one"], ["weather", "two"]);
    assert.equal(await client.unsubscribe("news"), 1);
    assert.equal(await other.publish("news", "three"), 0);
    // In protocol 3 other commands go on beside it.
    if (protocol === 3) assert.equal(await client.get("absent"), null);
    else assert.match((await failure(() => client.get("absent"))).message, /subscriber mode/);
  },

  async patterns() {
    const [client, other, heard] = [connect(), connect(), new Heard()];
    client.on("pmessageBuffer", (pattern, channel, text) => heard.note(pattern, channel, text.toString("hex")));
    await client.psubscribe("old*");
    assert.equal(await other.publish("older", Buffer.from([0, 255])), 1);
    await heard.are(["old*", "older", "00ff"]);
    assert.equal(await client.punsubscribe("old*"), 0);
  },

  async sharded() {
    const [client, other, heard] = [connect(), connect(), new Heard()];
    client.on("smessage", (channel, text) => heard.note(channel, text));
    assert.equal(await client.ssubscribe("part"), 1);
    assert.equal(await other.spublish("part", "one"), 1);
    await heard.are(["part", "one"]);
    assert.equal(await client.sunsubscribe("part"), 0);
  },

  async binary() {
    const client = connect();
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    assert.equal(await client.set(bytes, bytes), "OK");
    assert.deepEqual(await client.getBuffer(bytes), bytes);
    assert.deepEqual(await client.getrangeBuffer(bytes, 10, 14), bytes.subarray(10, 15));
    assert.equal(await client.set("", ""), "OK");
    assert.equal(await client.get(""), "");
  },

  async big() {
    const client = connect();
    const value = Buffer.alloc(8 << 20);
    for (let at = 0; at < value.length; at += 4) value.writeUInt32LE(Math.imul(at, 2_654_435_761) >>> 0, at);
    assert.equal(await client.set("big", value), "OK");
    assert.equal(await client.strlen("big"), value.length);
    assert(value.equals(await client.getBuffer("big")), "the value has changed");
    assert.equal(await client.del("big"), 1);
  },

  async scan() {
    const client = connect();
    await client.mset(Object.fromEntries(Array.from({ length: 2_000 }, (_, number) => [`scanned:${number}`, number])));
    const found = new Set();
    for await (const keys of client.scanStream({ match: "scanned:*", count: 100 })) keys.forEach((key) => found.add(key));
    assert.equal(found.size, 2_000);
  },

  async expiry() {
    const client = connect();
    assert.equal(await client.set("brief", "x", "EX", 100), "OK");
    const left = await client.ttl("brief");
    assert(left > 0 && left <= 100);
    assert.equal(await client.persist("brief"), 1);
    assert.equal(await client.ttl("brief"), -1);
    assert.equal(await client.ttl("absent"), -2);
    assert.equal(await client.pexpireat("brief", 1), 1);
    assert.equal(await client.get("brief"), null);
    await client.set("brief", "y", "PX", 20);
    await until("the end of a key", async () => (await client.get("brief")) === null);
  },

  async bits() {
    const client = connect();
    assert.equal(await client.setbit("bits", 7, 1), 0);
    assert.equal(await client.getbit("bits", 7), 1);
    assert.equal(await client.bitcount("bits"), 1);
    assert.equal(await client.bitpos("bits", 1), 7);
    assert.equal(await client.bitop("NOT", "inverse", "bits"), 1);
    assert.equal(await client.bitcount("inverse"), 7);
    assert.deepEqual(await client.bitfield("bits", "INCRBY", "u8", 0, 300, "OVERFLOW", "FAIL", "INCRBY", "u8", 0, 255), [45, null]);
  },

  async tls() {
    const port = harness.tlsPort;
    const client = connect({ port, ...tls() });
    assert.equal(await client.set("secret", "word"), "OK");
    assert.equal(await client.get("secret"), "word");
    await failure(() => once({ port, ...tls({ ca: file("stranger.pem") }) }).connect());
    await failure(() => once({ port, ...tls({ servername: "elsewhere" }) }).connect());
  },

  async "mutual tls"() {
    const port = harness.mutualPort;
    const friend = connect({ port, ...tls({ cert: file("friend.pem"), key: file("friend.key") }) });
    assert.equal(await friend.ping(), "PONG");
    await failure(() => once({ port, ...tls() }).ping());
    await failure(() => once({ port, ...tls({ cert: file("foe.pem"), key: file("foe.key") }) }).ping());
  },

  async users() {
    const client = connect();
    await client.acl("SETUSER", "reader", "reset", "on", ">pass", "~open:*", "+@read", "+@connection", "+info");
    await client.mset("open:a", 1, "closed:a", 2);
    const reader = connect({ username: "reader", password: "pass" });
    assert.equal(await reader.get("open:a"), "1");
    for (const refused of [() => reader.get("closed:a"), () => reader.set("open:a", 2)]) {
      const error = await failure(refused);
      assert(error instanceof ReplyError);
      assert.match(error.message, /^NOPERM/);
    }
    assert.equal(await reader.acl("WHOAMI").catch((error) => error.message.slice(0, 6)), "NOPERM");
  },

  async "wrong password"() {
    const client = once({ username: "reader", password: "wrong" });
    const said = new Promise((heard) => client.on("error", heard));
    client.ping().catch(() => {});
    assert.match((await said).message, /WRONGPASS/);
  },

  async errors() {
    const client = connect();
    await client.set("text", "no number");
    const expected = [
      [() => client.incr("text"), /^ERR value is not an integer/],
      [() => client.call("get"), /^ERR wrong number of arguments/],
      [() => client.call("nonsense", "x"), /^ERR unknown command/],
      [() => client.setrange("text", -1, "x"), /^ERR offset is out of range/],
      [() => client.select(100_000), /^ERR DB index is out of range/],
    ];
    for (const [work, message] of expected) {
      const error = await failure(work);
      assert(error instanceof ReplyError, String(error));
      assert.match(error.message, message);
    }
    assert.equal(await client.get("text"), "no number");
  },

  async kill() {
    const [client, listener, other, heard] = [connect(), connect(), connect(), new Heard()];
    listener.on("message", (channel, text) => heard.note(channel, text));
    const old = await idOf(client);
    const listening = await idOf(listener);
    await listener.subscribe("after");
    assert.equal(await other.client("KILL", "ID", old), 1);
    assert.equal(await other.client("KILL", "ID", listening), 1);
    assert.equal(await client.set("after", "kill"), "OK");
    assert.notEqual(await idOf(client), old);
    await until("a new subscription", async () => (await other.publish("after", "kill")) === 1);
    await heard.are(["after", "kill"]);
  },

  async restart() {
    // What was on its way when the connection ended is sent again.
    const client = connect();
    let last = 0;
    let isBack = false;
    let ask;
    const acknowledged = new Map();
    while (!isBack || last < 200) {
      const numbers = Array.from({ length: 10 }, () => (last += 1));
      const write = (number) => client.set(`kept:${number}`, number).then(() => acknowledged.set(number, true));
      await Promise.allSettled(numbers.map(write));
      if (last === 100) ask = harness.restart().then(() => (isBack = true));
    }
    await ask;
    assert(acknowledged.size >= 100);
    for (const number of acknowledged.keys()) assert.equal(await client.get(`kept:${number}`), String(number));
  },
};

for (const [name, body] of Object.entries(cases)) {
  cases[name] = () => body().finally(() => open.splice(0).forEach((client) => client.disconnect()));
}
harness.run(cases);
