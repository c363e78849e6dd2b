import { setTimeout as sleep } from "node:timers/promises";
import { isNotHeld, isPassing, ServerError } from "./errors.js";
import type { Hold } from "./hold.js";
import type { Server } from "./server.js";
import { RETRY_MS } from "./time.js";

/** What reads whether a token holds a lock, by the form of the lock. */
const READS = { mutex: "GET", reentrant: "HGET", shared: "ZMSCORE" } as const;
type Kind = keyof typeof READS;

const wordsOf = (kind: Kind, key: string, tokens: string[]) => [READS[kind], key, ...(kind === "mutex" ? [] : tokens)];

/** Returns the form of a lock, undefined if the user has no right to read it. */
export async function kindOf(server: Server, key: string, token: string): Promise<Kind | undefined> {
  for (const kind of Object.keys(READS) as Kind[]) {
    const words = wordsOf(kind, key, [token]);
    const isRead = await server.ask(key, { words, script: words }).then(
      () => true,
      (error) => {
        if (!(error instanceof ServerError)) throw error;
      },
    );
    if (isRead) return kind;
  }
  return undefined;
}

/**
 * Watches one key for all its holds in this process: one read after a change shows which of them hold the lock, and makes
 * the server report the next change. Changes that come during a read are one more read.
 */
export class Watch {
  readonly #holds = new Set<Hold>();
  /** What is called when the key may have changed. */
  readonly observers = new Set<() => void>();
  /** A read that has not begun will see all changes until then. */
  #isStale = false;
  #reads = Promise.resolve();

  constructor(
    readonly server: Server,
    readonly key: string,
  ) {
    server.watches.set(key, this);
  }

  add(hold: Hold): void {
    this.#holds.add(hold);
    this.changed();
  }

  delete(hold: Hold): void {
    this.#holds.delete(hold);
    this.forget();
  }

  /** Ends the watch if nothing needs it. */
  forget(): void {
    if (this.#holds.size + this.observers.size === 0) this.server.watches.delete(this.key);
  }

  /** The key may have changed. */
  changed(): void {
    for (const observer of this.observers) observer();
    if (!this.#isStale) this.#reads = this.#reads.then(() => this.#read());
    this.#isStale = true;
  }

  disconnected(): void {
    for (const hold of this.#holds) hold.seen();
    this.changed();
  }

  async #read(): Promise<void> {
    this.#isStale = false;
    if (this.#holds.size === 0) return;
    const shares = [...this.#holds].filter(({ request }) => request.wanted.kind === "shared");
    const others = [...this.#holds].filter(({ request }) => request.wanted.kind !== "shared");
    try {
      const connection = this.server.connection(this.key);
      await connection.track();
      if (shares.length > 0) await this.#look(shares, "shared");
      for (const hold of others) await this.#look([hold], hold.request.wanted.kind);
      // Its slot may have moved to a node that does not report changes yet.
      if (this.server.connection(this.key) !== connection) this.changed();
    } catch (error) {
      // Any other error is one of rights: a loss is seen at the next renewal, or the lease ends.
      if (!isPassing(error)) return;
      await sleep(RETRY_MS);
      this.changed();
    }
  }

  /** Asks which of some holds have the key. Holds that are added later are not meant by the reply. */
  async #look(holds: Hold[], kind: Kind): Promise<void> {
    const tokens = holds.map(({ request }) => request.token);
    const words = wordsOf(kind, this.key, tokens);
    const reply = await this.server.ask(this.key, { words, script: words }).catch((error) => {
      if (!isNotHeld(error)) throw error;
    });
    for (const [n, hold] of holds.entries()) {
      const found = Array.isArray(reply) ? reply[n] : reply;
      hold.seen(kind === "mutex" ? String(found) === tokens[n] : (found ?? null) !== null);
    }
  }
}
