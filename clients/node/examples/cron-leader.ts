// Of many processes, one runs a task at each interval. If its process ends, however it ends, the next one takes over.
import { setInterval } from "node:timers/promises";
import { createLocks, type LockClient } from "redis-lock-client";

/** Reports the leader by its label at each change, until `stop` is aborted. */
export async function follow(client: LockClient, report: (leader: string | null) => void, stop: AbortSignal) {
  for await (const leader of createLocks(client).observe("cron", { signal: stop })) report(leader);
}

export async function lead(
  client: LockClient,
  every: number,
  task: () => Promise<void>,
  stop: AbortSignal,
): Promise<void> {
  const locks = createLocks(client);
  while (!stop.aborted) {
    try {
      await using lock = await locks.acquire("cron", {
        lease: 10_000,
        session: true,
        signal: stop,
        label: `pid-${process.pid}`,
      });
      const end = AbortSignal.any([stop, lock.signal]);
      for await (const _ of setInterval(every, undefined, { signal: end })) await task();
    } catch (error) {
      if (!stop.aborted && (error as Error).name !== "AbortError") throw error;
    }
  }
}
