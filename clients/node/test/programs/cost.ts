// Prints how much more processor time a free lock takes than its two plain commands, each at its best of some turns: LIBRARY PORT TASKS
import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { createLocks } from "../../src/index.js";

const [library, port, tasks] = process.argv.slice(2).map((text) => Number(text) || text) as [string, number, number];
const CYCLES = 1_000;
const TURNS = 9;

/** Returns the microseconds of processor time of a cycle. */
async function cost(cycle: (name: string) => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  const work = async (name: string) => {
    for (let n = 0; n < CYCLES / tasks; n++) await cycle(name);
  };
  await Promise.all(Array.from({ length: tasks }, (_, n) => work(`cost:${n}`)));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / CYCLES;
}

const ioredis = new Redis(port, { lazyConnect: true });
const nodeRedis = createClient({ url: `redis://127.0.0.1:${port}`, RESP: 3, maintNotifications: "disabled" });
const isIoredis = library === "ioredis";
const locks = createLocks(isIoredis ? ioredis : nodeRedis);
await (isIoredis ? ioredis : nodeRedis).connect();
const send = (name: string, ...words: string[]): Promise<unknown> =>
  isIoredis ? ioredis.call(name, ...words) : nodeRedis.sendCommand([name, ...words]);

const best = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY] as [number, number];
for (let turn = 0; turn < TURNS; turn++) {
  const one = async (name: string) => (await locks.acquire(name, { lease: 10_000, wait: 10_000 })).release();
  const other = async (name: string) => {
    const token = randomBytes(16).toString("hex");
    await send("LOCK.ACQUIRE", name, token, "PX", "10000");
    await send("LOCK.RELEASE", name, token);
  };
  best[0] = Math.min(best[0], await cost(one));
  best[1] = Math.min(best[1], await cost(other));
}
console.log(best[0] / best[1]);
process.exit();
