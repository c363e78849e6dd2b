// Measures this package against redlock, redis-semaphore and redlock-universal: `npm run bench`, with PORT of a server that has the module.
// The other packages are those of the benchmark of the project: scripts/setup bench installs them.
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "redis-lock-client";

const peers = createRequire(new URL("../../../bench/peers/package.json", import.meta.url));
const { Redis } = peers("ioredis");
const port = Number(process.env.PORT ?? 6379);
const TASKS = 100;
const ROUNDS = 5;
const HOLD_MS = 2;

/** For each package: a function that acquires a lock and returns what releases it. */
const packages = {
  "redis-lock-client": (client) => {
    const locks = createLocks(client);
    return async (name) => {
      const lock = await locks.acquire(name, { lease: 10_000, wait: 10_000 });
      return () => lock.release();
    };
  },
  "redis-semaphore": (client) => {
    const { Mutex } = peers("redis-semaphore");
    return async (name) => {
      const mutex = new Mutex(client, name);
      await mutex.acquire();
      return () => mutex.release();
    };
  },
  redlock: (client) => {
    const Redlock = peers("redlock");
    const redlock = new Redlock([client], { retryCount: 50 });
    return async (name) => {
      const lock = await redlock.lock(name, 10_000);
      return () => lock.unlock();
    };
  },
  "redlock-universal": (client) => {
    const { createLock, IoredisAdapter } = peers("redlock-universal");
    return async (name) => {
      const lock = createLock({
        adapter: new IoredisAdapter(client),
        key: name,
        ttl: 10_000,
        retryAttempts: 50,
        retryDelay: 200,
      });
      const handle = await lock.acquire();
      return () => lock.release(handle);
    };
  },
};

const percentile = (values, part) => values.sort((one, other) => one - other)[Math.floor((values.length - 1) * part)];
const ms = (value) => `${value?.toFixed(1) ?? "-"} ms`;
const commands = async (client) => Number(/total_commands_processed:(\d+)/.exec(await client.info("stats"))[1]);

async function measure(connect) {
  const client = new Redis(port);
  const acquire = connect(client);
  await (await acquire("warm"))();
  const alone = [];
  for (let n = 0; n < 300; n++) {
    const began = performance.now();
    await (await acquire("alone"))();
    alone.push(performance.now() - began);
  }
  const waits = [];
  let failed = 0;
  const before = await commands(client);
  const began = performance.now();
  const task = async () => {
    for (let round = 0; round < ROUNDS; round++) {
      const asked = performance.now();
      try {
        const release = await acquire("busy");
        waits.push(performance.now() - asked);
        await sleep(HOLD_MS);
        await release();
      } catch {
        failed++;
      }
    }
  };
  await Promise.all(Array.from({ length: TASKS }, task));
  const took = performance.now() - began;
  const sent = (await commands(client)) - before;
  client.disconnect();
  return {
    alone: ms(percentile(alone, 0.5)),
    "grants/s": Math.round((waits.length / took) * 1000),
    "median wait": ms(percentile(waits, 0.5)),
    "longest wait": ms(percentile(waits, 1)),
    "commands/grant": (sent / waits.length).toFixed(1),
    failed,
  };
}

console.log(`${TASKS} tasks of one process, each ${ROUNDS} times, one lock held for ${HOLD_MS} ms`);
const results = {};
for (const [name, connect] of Object.entries(packages)) results[name] = await measure(connect);
console.table(results);
