// What programs may and may not write, for the compiler alone.

import { Cluster, Redis } from "ioredis";
import { Cluster as C5, Redis as R5 } from "ioredis-5";
import { Redis as V } from "iovalkey";
import { createClient, createCluster, createSentinel } from "redis";
import { createClient as c5, createCluster as k5, createSentinel as s5 } from "redis-5";
import { Mutex, Semaphore } from "../src/compat/redis-semaphore.js";
import Redlock, { type Lock as RedlockLock } from "../src/compat/redlock.js";
import { createLocks, type Lock } from "../src/index.js";

/** Never called. */
export async function compiles(): Promise<void> {
  const nodeRedis = [createClient(), createCluster({ rootNodes: [] }), c5(), k5({ rootNodes: [] })];
  const ioredis = [new Redis(), new Cluster([]), new R5(), new C5([]), new V()];
  const sentinel = { name: "x", sentinelRootNodes: [] };
  for (const client of [...nodeRedis, ...ioredis, createSentinel(sentinel), s5(sentinel)]) createLocks(client);
  const locks = createLocks(createClient());
  const fence: number = await locks.using("x", { lease: 1 }, async (lock: Lock) => lock.fence());
  await locks.acquire("x");
  // @ts-expect-error: there is no name.
  await locks.acquire({ lease: 1 });
  // @ts-expect-error: this is no client.
  createLocks({ foo: fence });
  new Mutex(new Redis(), "x", {
    onLockLost(error) {
      console.log(this.isAcquired, error.message);
    },
  });
  await new Semaphore(new Redis(), "x", 3).acquire(AbortSignal.timeout(1));
  const lock: RedlockLock = await new Redlock([new Redis()]).acquire(["x"], 5);
  await lock.release();
}
