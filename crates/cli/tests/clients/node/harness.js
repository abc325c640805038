// What both programs of this folder share: cases that run one after the other, each with its line of the report.
//
// arguments: PORT TLS_PORT MUTUAL_PORT FOLDER PROTOCOL, where FOLDER has the certificates.
// The report: `ok CASE`, `skip CASE: reason`, `FAIL CASE: reason`; last `done`.
// `restart` asks whoever started the program to kill the server and start it again; a line of input says that it is back.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");

const [port, tlsPort, mutualPort, folder, protocol] = process.argv.slice(2);
const PATIENCE_MS = 60_000;

class Skip extends Error {}

/** Ends the case as one that the client cannot do. */
function skip(reason) {
  throw new Skip(reason);
}

const file = (name) => fs.readFileSync(path.join(folder, name));
const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Asks for the kill; the promise is kept when the server is back. */
async function restart() {
  console.log("restart");
  const { value } = await lines.next();
  assert.equal(value, "ready");
}

/** Waits until `condition` gives something that counts as true, and gives that. */
async function until(what, condition) {
  const end = Date.now() + PATIENCE_MS;
  while (Date.now() < end) {
    const found = await condition();
    if (found) return found;
    await new Promise((next) => setTimeout(next, 5));
  }
  throw new Error(`${what} did not come about`);
}

/** The error with which `work` fails; it must. */
async function failure(work) {
  try {
    await work();
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

/** Messages in the order in which they came. */
class Heard {
  all = [];
  note(...message) {
    this.all.push(message.map(String));
  }
  async are(...expected) {
    await until(`hearing ${JSON.stringify(expected)}`, () => this.all.length >= expected.length);
    assert.deepEqual(this.all, expected);
  }
}

async function run(cases) {
  for (const [name, body] of Object.entries(cases)) {
    try {
      await body();
      console.log(`ok ${name}`);
    } catch (error) {
      if (error instanceof Skip) console.log(`skip ${name}: ${error.message}`);
      else console.log(`FAIL ${name}: ${String(error.stack).replaceAll("\n", " | ")}`);
    }
  }
  console.log("done");
  process.exit(0);
}

module.exports = {
  assert,
  failure,
  file,
  Heard,
  mutualPort: Number(mutualPort),
  port: Number(port),
  protocol: Number(protocol),
  restart,
  run,
  skip,
  tlsPort: Number(tlsPort),
  until,
};
