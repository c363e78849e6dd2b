// A worker of BullMQ: many jobs at a time, one for each customer, however many workers there are.
import { type Job, Worker } from "bullmq";
import { Redis } from "ioredis";
import { createLocks } from "redis-lock-client";

export interface Charge {
  readonly customer: string;
  readonly cents: number;
}

export function startWorker(
  connection: { host: string; port: number },
  charge: (charge: Charge, signal: AbortSignal) => Promise<void>,
): Worker<Charge> {
  // It is never connected: the locks use its options.
  const locks = createLocks(new Redis({ ...connection, lazyConnect: true }));
  const run = async ({ data, id }: Job<Charge>) => {
    // The error of a lost lock fails the job, which BullMQ then tries again.
    const options = { label: `job-${id}` };
    await locks.using(`customer:${data.customer}`, options, ({ signal }) => charge(data, signal));
  };
  return new Worker<Charge>("charges", run, { connection, concurrency: 20 });
}
