import { setTimeout as sleep } from "node:timers/promises";
import { isPassing } from "./errors.js";
import { SILENCE_MS } from "./request.js";
import { INFO } from "./scripts.js";
import type { Server } from "./server.js";
import { Deferred, RETRY_MS, within } from "./time.js";
import { Watch } from "./watch.js";

/** Yields the label of the holder, now and after each change. */
export async function* observe(server: Server, key: string, signal?: AbortSignal): AsyncGenerator<string | null, void> {
  const watch = server.watches.get(key) ?? new Watch(server, key);
  let change = new Deferred<void>();
  const changed = () => change.resolve();
  watch.observers.add(changed);
  try {
    for (let last: string | null | undefined; ; ) {
      signal?.throwIfAborted();
      change = new Deferred();
      const label = await look(server, key).catch((error) => {
        if (!isPassing(error)) throw error;
      });
      if (label === undefined) await sleep(RETRY_MS);
      else {
        if (label !== last) yield label;
        last = label;
        // The server may not report changes, or notice late that a lease has ended.
        await within(change.promise, SILENCE_MS, undefined, signal);
      }
    }
  } finally {
    watch.observers.delete(changed);
    watch.forget();
  }
}

async function look(server: Server, key: string): Promise<string | null> {
  await server.connection(key).track();
  const reply = await server.ask(key, { words: ["LOCK.INFO", key], script: ["EVAL", INFO, "1", key] });
  if (field(reply, "state") === "free") return null;
  const owner = field(reply, "owner");
  return owner === null ? "several holders" : labelOf(String(owner));
}

/** Returns a field of a map, which each client library returns in its own way. */
function field(reply: unknown, name: string): unknown {
  if (reply instanceof Map) return reply.get(name);
  if (!Array.isArray(reply)) return (reply as Record<string, unknown>)[name];
  const pair = reply.find((item) => item?.key === name);
  return pair ? pair.value : reply[reply.indexOf(name) + 1];
}

/** Returns the label of a token: the text before its last colon, else the token. */
export const labelOf = (token: string): string => /^(.*):/s.exec(token)?.[1] ?? token;
