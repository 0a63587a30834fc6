// Counters through ioredis or node-redis, whichever is installed, as its manual shows it.
//
//     node counters.js HOST:PORT,HOST:PORT PREFIX EVERY_MS shared|each
//
// `each` is for libraries whose client serves one thread: there is one thread, and one client.
// The contract of this program and its siblings in other languages is in tests/clients/README.md.
"use strict";

const WORKERS = 4;
const KEYS_EACH = 8;
const END_MS_MAX = 15_000;

/** The library's cluster client with nothing set but where to begin; `set` and `get` of it. */
async function connect(seeds) {
  let Redis;
  try {
    Redis = require("ioredis");
  } catch (error) {
    if (error.code !== "MODULE_NOT_FOUND") throw error;
    const { createCluster } = require("redis");
    const rootNodes = seeds.map(({ host, port }) => ({ url: `redis://${host}:${port}` }));
    const client = createCluster({ rootNodes });
    client.on("error", (said) => heard(said));
    await client.connect();
    return client;
  }
  const client = new Redis.Cluster(seeds);
  client.on("error", (said) => heard(said));
  return client;
}

const tally = {
  commands: 0,
  failed: 0,
  failed_at_end: 0,
  wrong: [],
  longest_ms: 0,
  unwritable_ms: 0,
  errors: {},
  begun: 0,
  finished: 0,
};
let ending = false;

/** What a library says beside its answers goes to stderr: it is no answer to a command. */
function heard(error) {
  console.error(`heard: ${error}`);
}

function count(tookMs, error, isLast) {
  tally.commands += 1;
  tally.longest_ms = Math.max(tally.longest_ms, tookMs);
  if (error === null) return;
  tally.failed += 1;
  if (isLast) tally.failed_at_end += 1;
  const said = `${error.name}: ${error.message}`.replace(/\d+/g, "N").slice(0, 100);
  tally.errors[said] = (tally.errors[said] ?? 0) + 1;
}

const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const pause = (ms) => after(ending ? 0 : ms);

/** Writes ever larger numbers to keys of its own, in turn, and reads back each of them. */
async function work(client, prefix, number, everyMs) {
  const name = `${prefix}-${number}`;
  const own = { failed: 0 };
  const keys = Array.from({ length: KEYS_EACH }, (_, place) => ({
    key: `${name}-${place}`,
    own,
    last: null,
    maybe: new Set(),
    since: null,
  }));
  let begun = false;
  let isLast = false;
  let value = 0;
  while (!isLast) {
    isLast = ending; // one whole round after the end was asked for
    const failedBefore = own.failed;
    for (const each of keys) {
      let written = await set(client, each, String((value += 1)), isLast);
      while (!written && !ending) {
        await pause(everyMs);
        written = await set(client, each, String((value += 1)), isLast);
      }
      if (written && !begun) {
        begun = true;
        tally.begun += 1;
        if (tally.begun === WORKERS) console.log("ready");
      }
      await pause(everyMs);
      await get(client, each, isLast);
      await pause(everyMs);
    }
    if (own.failed === failedBefore) console.log(`round ${number}`);
  }
  tally.finished += 1;
}

async function set(client, each, value, isLast) {
  const began = performance.now();
  each.since ??= began;
  let error = null;
  try {
    await client.set(each.key, value);
  } catch (caught) {
    error = caught;
    each.maybe.add(value);
    each.own.failed += 1;
  }
  const ended = performance.now();
  count(ended - began, error, isLast);
  if (error === null) {
    each.last = value;
  }
  if (error === null || isLast) {
    tally.unwritable_ms = Math.max(tally.unwritable_ms, ended - each.since);
    each.since = null;
  }
  return error === null;
}

async function get(client, each, isLast) {
  const began = performance.now();
  let error = null;
  let found = null;
  try {
    found = await client.get(each.key);
  } catch (caught) {
    error = caught;
    each.own.failed += 1;
  }
  count(performance.now() - began, error, isLast);
  if (error !== null || found === each.last) return;
  if (each.maybe.delete(found)) {
    // A write of which nobody knew whether it took effect: it did, and only once.
    each.last = found;
    return;
  }
  tally.wrong.push(`${each.key}: ${found} instead of ${each.last}`);
}

function report() {
  const { wrong, begun, finished, ...counted } = tally;
  const text = JSON.stringify({
    ...counted,
    wrong: wrong.length,
    longest_ms: Math.round(tally.longest_ms),
    unwritable_ms: Math.round(tally.unwritable_ms),
    unfinished: WORKERS - finished,
    examples: wrong.slice(0, 5),
  });
  process.stdout.write(`${text}\n`, () => process.exit(0));
}

async function main() {
  const [at, prefix, everyMs] = process.argv.slice(2);
  const seeds = at.split(",").map((each) => {
    const colon = each.lastIndexOf(":");
    return { host: each.slice(0, colon), port: Number(each.slice(colon + 1)) };
  });
  const client = await connect(seeds);
  const workers = Array.from({ length: WORKERS }, (_, number) =>
    work(client, prefix, number, Number(everyMs)),
  );
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on("end", resolve));
  ending = true;
  await Promise.race([Promise.all(workers), after(END_MS_MAX)]);
  report();
}

main();
