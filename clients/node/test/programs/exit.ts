// Does one thing with a lock, says that it is done, and has nothing more to do: LIBRARY PORT WHAT
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Locks } from "../../src/index.js";
import { GLIDE, LIBRARIES } from "../support/libraries.js";

const [name, port, what = ""] = process.argv.slice(2);
const library = [...LIBRARIES, GLIDE].find((one) => one.name === name);
if (!library) throw new Error(`no library ${name}`);
const locks = createLocks(library.client(Number(port)));

const deeds: Record<string, (locks: Locks) => Promise<unknown>> = {
  release: async () => (await locks.acquire("release", { lease: 30_000 })).release(),
  using: () => locks.using("using", { lease: 30_000 }, () => sleep(10)),
  session: () => locks.using("session", { lease: 30_000, session: true }, () => sleep(10)),
  unwatched: () => locks.acquire("unwatched", { lease: 30_000 }),
  timeout: () => locks.acquire("busy", { lease: 30_000, wait: 100 }).catch((error) => error),
  abort: () => locks.acquire("busy", { lease: 30_000, signal: AbortSignal.timeout(100) }).catch((error) => error),
  outage: async () => {
    const lock = await locks.acquire("outage", { lease: 30_000 });
    console.log("held");
    await sleep(500);
    await lock.release().catch((error) => error);
  },
  loss: async () => once((await locks.acquire("loss", { lease: 100 })).signal, "abort"),
};
await deeds[what]?.(locks);
console.log("done");
