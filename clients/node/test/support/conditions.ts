import { setTimeout as sleep } from "node:timers/promises";

/** Waits until a condition holds. Throws after `ms` milliseconds. */
export async function until(condition: () => boolean | Promise<boolean>, what: string, ms = 30_000): Promise<void> {
  const end = performance.now() + ms;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`in vain: ${what}`);
    await sleep(5);
  }
}

/** The rejections that no code has handled, which each test file checks to be none. */
export const unhandled: unknown[] = [];
process.on("unhandledRejection", (reason) => unhandled.push(reason));
