// Of many processes, one runs a task at each interval. If its process ends, however it ends, the next one takes over.
import { setInterval } from "node:timers/promises";
import { createLocks, type LockClient } from "redis-lock-client";

export async function lead(
  client: LockClient,
  every: number,
  task: () => Promise<void>,
  stop: AbortSignal,
): Promise<void> {
  const locks = createLocks(client);
  while (!stop.aborted) {
    try {
      await using lock = await locks.acquire("cron", { lease: 10_000, session: true, signal: stop });
      const end = AbortSignal.any([stop, lock.signal]);
      for await (const _ of setInterval(every, undefined, { signal: end })) await task();
    } catch (error) {
      if (!stop.aborted && (error as Error).name !== "AbortError") throw error;
    }
  }
}
