// The driver of this package for clients/vectors/player.py.
import { getEventListeners } from "node:events";
import { createInterface } from "node:readline";
import { createClient } from "redis";
import {
  createLocks,
  type Lock,
  LockConnectionError,
  LockLostError,
  type LockOptions,
  LockQueueFullError,
  LockTimeoutError,
  ModuleNeededError,
  type SeveralLocks,
} from "../../src/index.js";

const client = createClient({ url: `redis://${process.env.DRIVER_USER ?? ""}127.0.0.1:${process.argv[2]}` });
client.on("error", () => {});
const locks = createLocks(client);
const held = new Map<string, Lock>();
const severals = new Map<string, SeveralLocks>();
const waits = new Map<string, AbortController>();
const ends = new Map<string, (error?: Error) => void>();
const CANCELLED = new Error("cancelled");
const FAILED = new Error("the work fails");

const say = (id: string, outcome: string) => console.log(`${id} ${outcome}`);

/** Returns the option for the word of a step, such as `lease=30000`. */
function option(word: string): LockOptions {
  const [name = "", value] = word.split("=");
  if (name === "label") return { label: value };
  return { [name === "max_waiters" ? "maxWaiters" : name]: value === undefined || Number(value) };
}

function optionsOf(id: string, words: readonly string[]): LockOptions {
  const abort = new AbortController();
  waits.set(id, abort);
  return Object.assign({ signal: abort.signal }, ...words.map(option));
}

function lockOf(id: string): Lock {
  const lock = held.get(id);
  if (!lock) throw new Error(`no lock ${id}`);
  return lock;
}

function classOf(error: unknown): string {
  if (error === CANCELLED) return "cancelled";
  if (error === FAILED) return "failed";
  if (error instanceof LockTimeoutError) return "timeout";
  if (error instanceof LockQueueFullError) return "error full";
  if (error instanceof LockLostError) return "error lost";
  if (error instanceof ModuleNeededError) return "error module";
  if (error instanceof LockConnectionError) return "error connection";
  if (error instanceof TypeError || error instanceof RangeError) return "error argument";
  return "error server";
}

const steps: Record<string, (id: string, ...args: string[]) => Promise<string | undefined>> = {
  async acquire(id, name = "", ...words) {
    held.set(id, await locks.acquire(name, optionsOf(id, words)));
    return "held";
  },
  async try(id, name = "", ...words) {
    const lock = await locks.tryAcquire(name, optionsOf(id, words));
    if (lock) held.set(id, lock);
    return lock ? "held" : "busy";
  },
  async block(id, name = "", ...words) {
    await locks.using(name, optionsOf(id, words), (lock) => {
      held.set(id, lock);
      say(id, "held");
      return new Promise<void>((resolve, reject) => {
        ends.set(id, (error) => (error ? reject(error) : resolve()));
      });
    });
    return "released";
  },
  async end(id) {
    ends.get(id)?.();
    return undefined;
  },
  async fail(id) {
    ends.get(id)?.(FAILED);
    return undefined;
  },
  async release(id) {
    await (severals.get(id) ?? lockOf(id)).release();
    return "released";
  },
  async extend(id, ms) {
    await lockOf(id).extend(Number(ms));
    return "extended";
  },
  async fence(id) {
    return `fence ${await lockOf(id).fence()}`;
  },
  async watch(id) {
    const { signal } = severals.get(id) ?? lockOf(id);
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
    return "lost";
  },
  async cancel(id) {
    waits.get(id)?.abort(CANCELLED);
    return undefined;
  },
  async detach(id) {
    return `token ${lockOf(id).detach()}`;
  },
  async attach(id, name = "", token = "", ...words) {
    held.set(id, await locks.attach(name, token, Object.assign({}, ...words.map(option))));
    return "held";
  },
  async several(id, names = "", ...words) {
    severals.set(id, await locks.several(names.split(","), optionsOf(id, words)));
    return "held";
  },
  async observe(id, name = "") {
    for await (const label of locks.observe(name)) say(id, `leader ${label ?? "none"}`);
    return undefined;
  },
  async repeat(id, number, name = "", ...words) {
    const options = optionsOf(id, words);
    for (let n = 0; n < Number(number); n++) await (await locks.acquire(name, options)).release();
    return `left ${options.signal ? getEventListeners(options.signal, "abort").length : 0}`;
  },
};

console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [step = "", id = "", ...args] = line.split(" ");
  const run = steps[step];
  if (!run) console.log("unsupported");
  else
    void run(id, ...args).then(
      (outcome) => outcome && say(id, outcome),
      (error) => say(id, classOf(error)),
    );
}
