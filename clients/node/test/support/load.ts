// What a busy machine adds to the times that tests measure: it is measured, too, so that bounds can be those of a quiet one.
import { setTimeout as sleep } from "node:timers/promises";
import type { TestServer } from "./servers.js";

const PAUSE_MS = 5;

/** Measures how long a timer of this process, and a reply of the server if there is one, is late. */
export class Load implements Disposable {
  #longest = 0;
  #seenAt = performance.now();
  #isRunning = true;

  constructor(server?: TestServer) {
    void this.#run(server);
  }

  async #run(server?: TestServer): Promise<void> {
    while (this.#isRunning) {
      await sleep(PAUSE_MS);
      await server?.command("PING").catch(() => {});
      this.#longest = this.longest;
      this.#seenAt = performance.now();
    }
  }

  /** The longest delay so far, in milliseconds. */
  get longest(): number {
    return Math.max(this.#longest, performance.now() - this.#seenAt - PAUSE_MS);
  }

  [Symbol.dispose](): void {
    this.#isRunning = false;
  }
}

/**
 * Returns how many milliseconds something takes, without what the machine adds if each of its steps waits as long for this
 * process or the server as the longest one has. A server that is stopped is not given.
 */
export async function ownTime(run: () => Promise<unknown>, server?: TestServer, steps = 4): Promise<number> {
  using load = new Load(server);
  const began = performance.now();
  await run();
  return performance.now() - began - steps * load.longest;
}

/**
 * Runs a test of a lease. If it fails while the machine is too busy to renew such a lease in time, it is run again, with a
 * lease that is `growth` times longer.
 */
export async function withLease<T>(
  lease: number,
  run: (lease: number) => Promise<T>,
  server?: TestServer,
  growth = 3,
): Promise<T> {
  for (let attempts = 1; ; attempts++) {
    using load = new Load(server);
    try {
      return await run(lease);
    } catch (error) {
      // A renewal has two thirds of the lease for a few steps.
      if (load.longest < lease / 6 || attempts === 4) throw error;
    }
    lease *= growth;
  }
}
