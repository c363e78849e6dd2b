// A worker that takes jobs from a list, one at a time for each customer, however many workers there are.
import type { createClient } from "redis";
import { createLocks, LockLostError } from "redis-lock-client";

export interface Job {
  readonly customer: string;
  readonly id: number;
}

export async function work(
  client: ReturnType<typeof createClient>,
  run: (job: Job, signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const locks = createLocks(client);
  for (;;) {
    const text = await client.lPop("jobs");
    if (text === null) return;
    const job = JSON.parse(text) as Job;
    try {
      await locks.using(`customer:${job.customer}`, { lease: 5_000, label: "worker" }, ({ signal }) =>
        run(job, signal),
      );
    } catch (error) {
      if (!(error instanceof LockLostError)) throw error;
      await client.lPush("jobs", text); // Another worker may have begun with the customer: later.
    }
  }
}
