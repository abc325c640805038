// What a program with node-redis does.
"use strict";

const redis = require("redis");
const harness = require("./harness.js");
const { assert, failure, file, Heard, port, protocol, until } = harness;

const BYTES = { [redis.RESP_TYPES.BLOB_STRING]: Buffer };

const open = [];
/** A connected client, closed with the others at the end of the case. */
async function connect({ socket, ...more } = {}) {
  const client = redis.createClient({
    RESP: protocol,
    socket: { host: "127.0.0.1", port, reconnectStrategy: () => 10, ...socket },
    ...more,
  });
  // What goes wrong is seen by the command.
  client.on("error", () => {});
  open.push(client);
  return client.connect();
}

/** One that gives up at once. */
const once = ({ socket, ...more }) => connect({ socket: { reconnectStrategy: false, ...socket }, ...more });

const tls = (port, more) => ({
  socket: { host: "127.0.0.1", port, tls: true, ca: file("ca.pem"), servername: "localhost", ...more },
});

const cases = {
  async connect() {
    const client = await connect({ name: "matrix" });
    await client.flushAll();
    assert.equal(await client.ping(), "PONG");
    const info = await client.clientInfo();
    assert.equal(info.name, "matrix");
    assert.equal(info.resp, protocol);
    assert.match(info.libName, /^node-redis/);
    assert.equal(await client.set("word", "stone"), "OK");
    assert.equal(await client.get("word"), "stone");
    assert.equal(await client.get("absent"), null);
    assert.deepEqual(await client.mGet(["word", "absent"]), ["stone", null]);
    const hello = await client.hello();
    assert.equal(hello.proto, protocol);
  },

  async pool() {
    const pool = redis.createClientPool({ RESP: protocol, socket: { host: "127.0.0.1", port } }, { minimum: 2, maximum: 8 });
    pool.on("error", () => {});
    await pool.connect();
    const seen = new Set();
    const callers = Array.from({ length: 32 }, async (_, caller) => {
      for (let round = 0; round < 50; round += 1) {
        await pool.execute(async (client) => {
          seen.add(await client.clientId());
          await client.incr("pooled");
          await client.set(`caller:${caller}`, round);
          assert.equal(await client.get(`caller:${caller}`), String(round));
        });
      }
    });
    await Promise.all(callers);
    assert.equal(await pool.get("pooled"), "1600");
    assert(seen.size > 1 && seen.size <= 8, `${seen.size} connections`);
    pool.destroy();
  },

  async "concurrent callers"() {
    const client = await connect();
    const callers = Array.from({ length: 32 }, async () => {
      for (let round = 0; round < 50; round += 1) await client.incr("count");
    });
    await Promise.all(callers);
    assert.equal(await client.get("count"), "1600");
  },

  async pipeline() {
    const client = await connect();
    const pipeline = client.multi();
    for (let number = 0; number < 1_000; number += 1) pipeline.set(`piped:${number}`, number).get(`piped:${number}`);
    const replies = await pipeline.execAsPipeline();
    replies.forEach((reply, at) => assert.equal(reply, at % 2 === 0 ? "OK" : String((at - 1) / 2)));
    assert.equal(replies.length, 2_000);
    // An error in the middle is the pipeline's; what stands around it is carried out.
    const error = await failure(() => client.multi().set("text", "x").incr("text").append("text", "y").execAsPipeline());
    assert(error instanceof redis.ErrorReply);
    assert.equal(await client.get("text"), "xy");
  },

  async transaction() {
    const client = await connect();
    const done = await client.multi().set("{t}:a", 1).incr("{t}:a").set("elsewhere", "x").get("{t}:a").exec();
    assert.deepEqual(done, ["OK", 2, "OK", "2"]);
    const error = await failure(() => client.multi().set("{t}:a", 9).addCommand(["nonsense"]).exec());
    assert(error instanceof redis.ErrorReply);
    assert.equal(await client.get("{t}:a"), "2");
  },

  async watch() {
    const [client, other] = [await connect(), await connect()];
    await client.watch("watched");
    await other.set("watched", 10);
    const error = await failure(() => client.multi().set("watched", 1).exec());
    assert(error instanceof redis.WatchError);
    await client.watch("watched");
    const now = Number(await client.get("watched"));
    assert.deepEqual(await client.multi().set("watched", now + 1).exec(), ["OK"]);
    assert.equal(await other.get("watched"), "11");
  },

  async channels() {
    const [client, other, heard] = [await connect(), await connect(), new Heard()];
    const note = (text, channel) => heard.note(channel, text);
    await client.subscribe(["news", "weather"], note);
    assert.equal(await other.publish("news", "one"), 1);
    assert.equal(await other.publish("weather", "two"), 1);
    await heard.are(["news", "one"], ["weather", "two"]);
    await client.unsubscribe("news");
    assert.equal(await other.publish("news", "three"), 0);
    // In protocol 3 other commands go on beside it.
    if (protocol === 3) assert.equal(await client.get("absent"), null);
  },

  async patterns() {
    const [client, other, heard] = [await connect(), await connect(), new Heard()];
    await client.pSubscribe("old*", (text, channel) => heard.note(channel, text.toString("hex")), true);
    assert.equal(await other.publish("older", Buffer.from([0, 255])), 1);
    await heard.are(["older", "00ff"]);
    await client.pUnsubscribe("old*");
    assert.equal(await other.publish("older", "x"), 0);
  },

  async sharded() {
    const [client, other, heard] = [await connect(), await connect(), new Heard()];
    await client.sSubscribe("part", (text, channel) => heard.note(channel, text));
    assert.equal(await other.sPublish("part", "one"), 1);
    await heard.are(["part", "one"]);
    await client.sUnsubscribe("part");
    assert.equal(await other.sPublish("part", "two"), 0);
  },

  async binary() {
    const client = (await connect()).withTypeMapping(BYTES);
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    assert.equal(await client.set(bytes, bytes), "OK");
    assert.deepEqual(await client.get(bytes), bytes);
    assert.deepEqual(await client.getRange(bytes, 10, 14), bytes.subarray(10, 15));
    assert.equal(await client.set("", ""), "OK");
    assert.deepEqual(await client.get(""), Buffer.alloc(0));
  },

  async big() {
    const client = (await connect()).withTypeMapping(BYTES);
    const value = Buffer.alloc(8 << 20);
    for (let at = 0; at < value.length; at += 4) value.writeUInt32LE(Math.imul(at, 2_654_435_761) >>> 0, at);
    assert.equal(await client.set("big", value), "OK");
    assert.equal(await client.strLen("big"), value.length);
    assert(value.equals(await client.get("big")), "the value has changed");
    assert.equal(await client.del("big"), 1);
  },

  async scan() {
    const client = await connect();
    await client.mSet(Object.fromEntries(Array.from({ length: 2_000 }, (_, number) => [`scanned:${number}`, String(number)])));
    const found = new Set();
    for await (const keys of client.scanIterator({ MATCH: "scanned:*", COUNT: 100 })) keys.forEach((key) => found.add(key));
    assert.equal(found.size, 2_000);
  },

  async expiry() {
    const client = await connect();
    assert.equal(await client.set("brief", "x", { expiration: { type: "EX", value: 100 } }), "OK");
    const left = await client.ttl("brief");
    assert(left > 0 && left <= 100);
    assert.equal(await client.persist("brief"), 1);
    assert.equal(await client.ttl("brief"), -1);
    assert.equal(await client.ttl("absent"), -2);
    assert.equal(await client.pExpireAt("brief", 1), 1);
    assert.equal(await client.get("brief"), null);
    await client.set("brief", "y", { expiration: { type: "PX", value: 20 } });
    await until("the end of a key", async () => (await client.get("brief")) === null);
  },

  async bits() {
    const client = await connect();
    assert.equal(await client.setBit("bits", 7, 1), 0);
    assert.equal(await client.getBit("bits", 7), 1);
    assert.equal(await client.bitCount("bits"), 1);
    assert.equal(await client.bitPos("bits", 1), 7);
    assert.equal(await client.bitOp("NOT", "inverse", "bits"), 1);
    assert.equal(await client.bitCount("inverse"), 7);
    const increment = (amount) => ({ operation: "INCRBY", encoding: "u8", offset: 0, increment: amount });
    const operations = [increment(300), { operation: "OVERFLOW", behavior: "FAIL" }, increment(255)];
    assert.deepEqual(await client.bitField("bits", operations), [45, null]);
  },

  async tls() {
    const port = harness.tlsPort;
    const client = await connect(tls(port));
    assert.equal(await client.set("secret", "word"), "OK");
    assert.equal(await client.get("secret"), "word");
    await failure(() => once(tls(port, { ca: file("stranger.pem") })));
    await failure(() => once(tls(port, { servername: "elsewhere" })));
  },

  async "mutual tls"() {
    const port = harness.mutualPort;
    const friend = await connect(tls(port, { cert: file("friend.pem"), key: file("friend.key") }));
    assert.equal(await friend.ping(), "PONG");
    const pings = async (more) => (await once(tls(port, more))).ping();
    await failure(() => pings({}));
    await failure(() => pings({ cert: file("foe.pem"), key: file("foe.key") }));
  },

  async users() {
    const client = await connect();
    await client.aclSetUser("reader", ["reset", "on", ">pass", "~open:*", "+@read", "+@connection"]);
    await client.mSet({ "open:a": "1", "closed:a": "2" });
    const reader = await connect({ username: "reader", password: "pass" });
    assert.equal(await reader.get("open:a"), "1");
    for (const refused of [() => reader.get("closed:a"), () => reader.set("open:a", 2), () => reader.aclWhoAmI()]) {
      const error = await failure(refused);
      assert(error instanceof redis.ErrorReply);
      assert.match(error.message, /^NOPERM/);
    }
  },

  async "wrong password"() {
    const error = await failure(() => once({ username: "reader", password: "wrong" }));
    assert.match(String(error), /WRONGPASS/);
  },

  async errors() {
    const client = await connect();
    await client.set("text", "no number");
    const expected = [
      [() => client.incr("text"), /^ERR value is not an integer/],
      [() => client.sendCommand(["get"]), /^ERR wrong number of arguments/],
      [() => client.sendCommand(["nonsense", "x"]), /^ERR unknown command/],
      [() => client.setRange("text", -1, "x"), /^ERR offset is out of range/],
      [() => client.sendCommand(["SELECT", "100000"]), /^ERR DB index is out of range/],
    ];
    for (const [work, message] of expected) {
      const error = await failure(work);
      assert(error instanceof redis.ErrorReply, String(error));
      assert.match(error.message, message);
    }
    assert.equal(await client.get("text"), "no number");
  },

  async kill() {
    const [client, listener, other, heard] = [await connect(), await connect(), await connect(), new Heard()];
    const listening = await listener.clientId();
    await listener.subscribe("after", (text, channel) => heard.note(channel, text));
    const old = await client.clientId();
    const kill = (id) => other.clientKill({ filter: "ID", id });
    assert.equal(await kill(old), 1);
    assert.equal(await kill(listening), 1);
    // A command that was on its way when the connection ended is not sent again.
    await until("a new connection", () => client.set("after", "kill").catch(() => false));
    assert.notEqual(await client.clientId(), old);
    await until("a new subscription", async () => (await other.publish("after", "kill")) === 1);
    await heard.are(["after", "kill"]);
  },

  async restart() {
    const client = await connect();
    let last = 0;
    let isBack = false;
    let ask;
    const acknowledged = [];
    while (!isBack || last < 200) {
      const numbers = Array.from({ length: 10 }, () => (last += 1));
      const write = (number) => client.set(`kept:${number}`, number).then(() => acknowledged.push(number));
      await Promise.allSettled(numbers.map(write));
      if (last === 100) ask = harness.restart().then(() => (isBack = true));
    }
    await ask;
    assert(acknowledged.length >= 100);
    for (const number of acknowledged) assert.equal(await client.get(`kept:${number}`), String(number));
  },
};

for (const [name, body] of Object.entries(cases)) {
  cases[name] = () => body().finally(() => open.splice(0).forEach((client) => client.destroy()));
}
harness.run(cases);
