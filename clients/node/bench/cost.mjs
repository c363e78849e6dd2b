// Measures the processor time of a free lock and of redlock, redis-semaphore and the plain commands, in turns: `npm run cost`,
// with PORT of a server that has the module. OTHER=path is another build of this package.
import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { createClient } from "redis";
import { createLocks } from "redis-lock-client";

const peers = createRequire(new URL("../../../bench/peers/package.json", import.meta.url));
const { Redis } = peers("ioredis");
const port = Number(process.env.PORT ?? 6379);
const TURNS = Number(process.env.TURNS ?? 7);
const CYCLES = 2_000;

const ofLocks = (locks) => async (name) => {
  await (await locks.acquire(name, { lease: 10_000, wait: 10_000 })).release();
};
const byHand = (send) => async (name) => {
  const token = randomBytes(16).toString("hex");
  await send(["LOCK.ACQUIRE", name, token, "PX", "10000"]);
  await send(["LOCK.RELEASE", name, token]);
};

const ioredis = new Redis(port);
const nodeRedis = await createClient({ url: `redis://127.0.0.1:${port}`, RESP: 3 }).connect();
const { Mutex } = peers("redis-semaphore");
const redlock = new (peers("redlock"))([ioredis]);
/** What acquires and releases the lock of a name. */
const packages = {
  "by hand, ioredis": byHand(([name, ...words]) => ioredis.call(name, ...words)),
  "this package, ioredis": ofLocks(createLocks(ioredis)),
  redlock: async (name) => (await redlock.lock(name, 10_000)).unlock(),
  "redis-semaphore": async (name) => {
    const mutex = new Mutex(ioredis, name);
    await mutex.acquire();
    await mutex.release();
  },
  "by hand, node-redis": byHand((words) => nodeRedis.sendCommand(words)),
  "this package, node-redis": ofLocks(createLocks(nodeRedis)),
};
if (process.env.OTHER) {
  const other = await import(process.env.OTHER);
  packages["other build, ioredis"] = ofLocks(other.createLocks(ioredis));
  packages["other build, node-redis"] = ofLocks(other.createLocks(nodeRedis));
}

/** Returns the microseconds of processor time of a cycle. */
async function cost(cycle, tasks) {
  const before = process.cpuUsage();
  const work = async (name) => {
    for (let n = 0; n < CYCLES / tasks; n++) await cycle(name);
  };
  await Promise.all(Array.from({ length: tasks }, (_, n) => work(`cost:${n}`)));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / CYCLES;
}

const results = {};
for (const tasks of [1, 100]) {
  const costs = Object.fromEntries(Object.keys(packages).map((name) => [name, []]));
  for (let turn = 0; turn <= TURNS; turn++) {
    for (const [name, cycle] of Object.entries(packages)) {
      const one = await cost(cycle, tasks);
      if (turn > 0) costs[name].push(one);
    }
  }
  for (const [name, all] of Object.entries(costs)) {
    const median = all.sort((one, other) => one - other)[all.length >> 1];
    results[name] = { ...results[name], [`us with ${tasks}`]: Number(median.toFixed(1)) };
  }
}
console.table(results);
process.exit();
