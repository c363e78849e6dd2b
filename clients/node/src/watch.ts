import { isNotHeld, isPassing } from "./errors.js";
import type { Request } from "./request.js";
import type { Server } from "./server.js";
import { pause, RETRY_MS } from "./time.js";

/** A hold that is watched. */
export interface Watched {
  readonly request: Request;
  /** The server was asked whether the token holds the lock. */
  seen(isHolding: boolean): void;
  /** A connection is lost. */
  disconnected(): void;
}

/**
 * Watches one key for all its holds in this process: one read after a change shows which of them hold the lock, and makes
 * the server report the next change. Changes that come during a read are one more read.
 */
export class Watch {
  readonly #holds = new Set<Watched>();
  #isReading = false;
  #isStale = false;

  constructor(
    readonly server: Server,
    readonly key: string,
  ) {}

  add(hold: Watched): void {
    this.#holds.add(hold);
    this.changed();
  }

  delete(hold: Watched): void {
    this.#holds.delete(hold);
    if (this.#holds.size === 0) this.server.watches.delete(this.key);
  }

  /** The key may have changed. */
  changed(): void {
    this.#isStale = true;
    if (!this.#isReading) void this.#read();
  }

  disconnected(): void {
    for (const hold of this.#holds) hold.disconnected();
    this.changed();
  }

  async #read(): Promise<void> {
    this.#isReading = true;
    while (this.#isStale && this.#holds.size > 0) {
      this.#isStale = false;
      try {
        const connection = this.server.connection(this.key);
        await connection.track();
        for (const holds of this.#groups()) await this.#look(holds);
        // Its slot may have moved to a node that does not report changes yet.
        this.#isStale ||= this.server.connection(this.key) !== connection;
      } catch (error) {
        // Any other error is one of rights: a loss is seen at the next renewal, or the lease ends.
        if (!isPassing(error)) continue;
        this.#isStale = true;
        await pause(RETRY_MS);
      }
    }
    this.#isReading = false;
  }

  /** The holds that one command asks for: a re-entrant lock has one holder, so a second one there is a lost one. */
  #groups(): Watched[][] {
    const all = [...this.#holds];
    const mutexes = all.filter(({ request }) => request.wanted.kind === "mutex");
    const shares = all.filter(({ request }) => request.wanted.kind === "shared");
    const others = all.filter(({ request }) => request.wanted.kind === "reentrant").map((hold) => [hold]);
    return [mutexes, shares, ...others].filter((holds) => holds.length > 0);
  }

  /** Holds that are added later are not meant by the reply. */
  async #look(holds: Watched[]): Promise<void> {
    const { key } = this;
    const tokens = holds.map(({ request }) => request.token);
    const [token = ""] = tokens;
    const kind = holds[0]?.request.wanted.kind ?? "mutex";
    const words = { mutex: ["GET", key], reentrant: ["HGET", key, token], shared: ["ZMSCORE", key, ...tokens] }[kind];
    const reply = await this.server.exchange(key, { words }).catch((error) => {
      if (isNotHeld(error)) return null;
      throw error;
    });
    for (const [n, hold] of holds.entries()) {
      const found = Array.isArray(reply) ? reply[n] : reply;
      hold.seen(kind === "mutex" ? String(found) === tokens[n] : found !== null && found !== undefined);
    }
  }
}
