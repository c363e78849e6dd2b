import { stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import type { Driver } from "../../src/index.js";

/** What happens to a command when its connection is lost: the server executes it not at all, before, or later. */
export type Fault = "not executed" | "executed" | "executed late";

/** How late. The package sends RELEASE again after a second. */
const LATE_MS = 500;

/** Returns a driver whose connections are lost where `fault` says so. `execute` sends a command by another connection. */
export function faulty(
  driver: Driver,
  fault: (words: readonly string[]) => Fault | undefined,
  execute: (words: string[]) => Promise<unknown>,
): Driver {
  return {
    ...driver,
    id: `faulty ${Math.random()}`,
    open: async (events, address) => {
      const link = await driver.open(events, address);
      let isLost = false;
      const send = async (words: readonly string[]) => {
        const what = isLost ? "not executed" : fault(words);
        if (what === undefined) return link.send(words);
        isLost = true;
        if (what === "executed") await link.send(words).catch(() => {});
        if (what === "executed late") void sleep(LATE_MS).then(() => execute([...words]).catch(() => {}));
        events.lost();
        throw new Error(`lost: ${what}`);
      };
      return { ...link, send };
    },
  };
}

/** Returns a driver whose replies to some commands come after a pause. */
export function slowReplies(
  driver: Driver,
  isSlow: (words: readonly string[]) => boolean,
  pause: () => Promise<unknown>,
): Driver {
  return {
    ...driver,
    id: `slow ${Math.random()}`,
    open: async (events, address) => {
      const link = await driver.open(events, address);
      const send = async (words: readonly string[]) => {
        const reply = await link.send(words);
        if (isSlow(words)) await pause();
        return reply;
      };
      return { ...link, send };
    },
  };
}

/** Returns a driver whose messages come late. */
export function slowMessages(driver: Driver, ms: number): Driver {
  return {
    ...driver,
    id: `slow ${Math.random()}`,
    open: (events, address) =>
      driver.open({ ...events, message: (text) => void sleep(ms).then(() => events.message(text)) }, address),
  };
}

/** Returns a driver that needs `ms` milliseconds to set up CLIENT TRACKING. */
export function slowTracking(driver: Driver, ms: number): Driver {
  return {
    ...driver,
    id: `slow ${Math.random()}`,
    open: async (events, address) => {
      const link = await driver.open(events, address);
      return { ...link, track: () => sleep(ms).then(() => link.track?.()) };
    },
  };
}

/** Stalls this process. What has come to it then, such as the state of a file, it reads as it reads replies: after its timers. */
export function stall(ms: number): Promise<unknown> {
  const reply = stat(".");
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  return reply;
}
