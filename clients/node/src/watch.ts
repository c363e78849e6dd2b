import { setTimeout as sleep } from "node:timers/promises";
import type { Hold } from "./hold.js";
import { isNotHeld, isPassing } from "./replies.js";
import type { Server } from "./server.js";
import { RETRY_MS } from "./time.js";

/** What reads whether a token holds a lock, by the form of the lock. */
const READS = { mutex: "GET", reentrant: "HGET", shared: "ZMSCORE" } as const;

/** What is called when a key may have changed. */
type Observer = { readonly token?: undefined; seen(): void };

/**
 * Watches one key for all its holds in this process: one read after a change shows which of them hold the lock, and makes
 * the server report the next change. Changes that come during a read are one more read.
 */
export class Watch {
  readonly #watchers = new Set<Hold | Observer>();
  /** A read that has not begun will see all changes until then. */
  #isStale = false;
  #reads = Promise.resolve();

  constructor(
    readonly server: Server,
    readonly key: string,
  ) {
    server.watches.set(key, this);
  }

  add(watcher: Hold | Observer): void {
    this.#watchers.add(watcher);
    this.changed();
  }

  delete(watcher: Hold | Observer): void {
    this.#watchers.delete(watcher);
    // A lost hold that is released late may be of a watch that has a successor.
    if (this.#watchers.size === 0 && this.server.watches.get(this.key) === this) this.server.watches.delete(this.key);
  }

  /** The key may have changed, or the connection was lost. */
  changed(isLost = false): void {
    for (const watcher of this.#watchers) if (isLost || !watcher.token) watcher.seen();
    if (!this.#isStale) this.#reads = this.#reads.then(() => this.#read());
    this.#isStale = true;
  }

  async #read(): Promise<void> {
    this.#isStale = false;
    const holds = [...this.#watchers].filter((watcher) => watcher.token !== undefined);
    if (holds.length === 0) return;
    const shares = holds.filter(({ wanted }) => wanted.kind === "shared");
    const others = holds.filter(({ wanted }) => wanted.kind !== "shared");
    try {
      const connection = this.server.connection(this.key);
      await connection.track();
      if (shares.length > 0) await this.#look(shares);
      for (const hold of others) await this.#look([hold]);
      // Its slot may have moved to a node that does not report changes yet.
      if (this.server.connection(this.key) !== connection) this.changed();
    } catch (error) {
      // Any other error is one of rights: a loss is seen at the next renewal, or the lease ends.
      if (!isPassing(error)) return;
      await sleep(RETRY_MS);
      this.changed();
    }
  }

  /** Asks which of some holds of one form have the key. Holds that are added later are not meant by the reply. */
  async #look(holds: Hold[]): Promise<void> {
    const kind = holds[0]?.wanted.kind ?? "mutex";
    const tokens = holds.map(({ token }) => token);
    const words = [READS[kind], this.key, ...(kind === "mutex" ? [] : tokens)];
    const reply = await this.server.ask(this.key, { words }).catch((error) => {
      if (!isNotHeld(error)) throw error;
    });
    for (const [n, hold] of holds.entries()) {
      const found = Array.isArray(reply) ? reply[n] : reply;
      hold.seen(kind === "mutex" ? String(found) === tokens[n] : (found ?? null) !== null);
    }
  }
}

/** Returns the state of a lock and the label of its holder, null if it is free. */
export async function infoOf(server: Server, key: string): Promise<{ state: unknown; label: string | null }> {
  const reply = await server.ask(key, { words: ["LOCK.INFO", key] });
  const [state, owner] = [field(reply, "state"), field(reply, "owner")];
  return { state, label: state === "free" ? null : owner === null ? "several holders" : labelOf(String(owner)) };
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
