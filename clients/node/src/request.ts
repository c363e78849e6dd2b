import { randomFillSync } from "node:crypto";
import type { Connection } from "./connection.js";
import { isNotHeld, isPassing } from "./errors.js";
import * as scripts from "./scripts.js";
import type { Server } from "./server.js";
import { counterOf } from "./slots.js";
import { abortable, now } from "./time.js";

/** A command, and the script that stands in for it without the module, if there is one. */
export interface Command {
  readonly words: readonly string[];
  readonly script?: readonly string[] | undefined;
  /** The acquisition that the command asks for. */
  readonly request?: Request;
  /** It was sent again after a lost connection. */
  isRepeated?: boolean;
}

/** What a caller asks for. */
export interface Wanted {
  /** The lease in milliseconds. */
  readonly lease: number;
  readonly kind: "mutex" | "reentrant" | "shared";
  /** How many holders a shared lock may have; without it any number. */
  readonly permits?: number | undefined;
  /** How many may wait before it. */
  readonly maxWaiters?: number | undefined;
  /** The server renews the lease while the connection is open, and releases the lock when it is closed. */
  readonly session: boolean;
  /** This process renews the lease. */
  readonly renew: boolean;
}

/** The longest time for which a session's lock is kept after a lost connection, in milliseconds. */
export const MAX_GRACE_MS = 1_000;
/** The longest wait that the server is asked for: a process that is gone without notice keeps its place no longer. */
export const MAX_BLOCK_MS = 15_000;
/** When RELEASE is sent again, if a request may reach the server after the first one. */
export const RETRY_RELEASE_MS = 1_000;
const NAMES = { mutex: "LOCK.ACQUIRE", reentrant: "LOCK.REENTER", shared: "LOCK.SHARE" } as const;

const RANDOM_BYTES = 16;
const random = Buffer.alloc(256 * RANDOM_BYTES);
let randomUsed = random.length;

/** Returns 128 random bits as text. Many are taken at a time: a call costs as much as a request. */
export function randomText(): string {
  if (randomUsed === random.length) {
    randomFillSync(random);
    randomUsed = 0;
  }
  randomUsed += RANDOM_BYTES;
  return random.toString("hex", randomUsed - RANDOM_BYTES, randomUsed);
}

/** One acquisition of a lock, with a token of its own: what is sent to the server for it. */
export class Request {
  /** The server may keep a queue entry or the lock for it. */
  isKnown = false;
  /** A copy of it was lost with its connection, and may be executed late. */
  isDoubtful = false;
  /** A RELEASE is on its way, which nothing may follow: it is not sent any more, to no node, and not as a script. */
  isCancelled = false;
  /** The time before it was sent last. The lease counts from there. */
  sentAt = now();
  /** Random and used once. LOCK.INFO shows its label to people. */
  readonly token: string;

  constructor(
    readonly server: Server,
    readonly key: string,
    readonly wanted: Wanted,
    label?: string,
    token?: string,
  ) {
    const random = token ?? randomText();
    this.token = label === undefined || token ? random : `${label}:${random}`;
  }

  get connection(): Connection {
    return this.server.connection(this.key);
  }

  /** The grace period of the session, in milliseconds. */
  get grace(): number {
    return Math.min(this.wanted.lease, MAX_GRACE_MS);
  }

  /** Asks for the lock without waiting, and not again after `until`. Returns whether it is held. It counts once, however often it is sent. */
  async take(signal?: AbortSignal, until = Number.POSITIVE_INFINITY): Promise<boolean> {
    const wasKnown = this.isKnown;
    this.sentAt = now();
    const { lease, kind } = this.wanted;
    const script = this.#script(scripts.TAKE, lease, kind === "reentrant" ? "hash" : "string");
    const command: Command = { words: this.#words(), script, request: this };
    const reply = await abortable(this.server.ask(this.key, command, until), signal);
    if (reply === null && !wasKnown && !this.isDoubtful) this.isKnown = false;
    return reply !== null;
  }

  /** Joins the queue of the server: a message on the channel ends the wait. Returns true if the lock is held already. */
  async join(ms: number, channel: string, signal?: AbortSignal): Promise<boolean> {
    this.sentAt = now();
    const words = [
      ...this.#words(),
      "BLOCK",
      String(Math.ceil(Math.min(Math.max(ms, 1), MAX_BLOCK_MS))),
      "NOTIFY",
      channel,
    ];
    const { maxWaiters } = this.wanted;
    if (maxWaiters !== undefined) words.push("MAXWAITERS", String(maxWaiters));
    const reply = await abortable(this.server.exchange(this.key, { words, request: this }), signal);
    return typeof reply === "number";
  }

  /** Sets the lease, from now on. */
  async extend(lease: number): Promise<void> {
    const words = ["LOCK.EXTEND", this.key, this.token, "PX", String(lease)];
    await this.server.ask(this.key, { words, script: this.#script(scripts.EXTEND, lease) });
  }

  /** Returns the next fencing token of the lock. Its counter is in the slot of the key. */
  async fence(): Promise<number> {
    const { key, token } = this;
    const counter = counterOf(key, this.server.driver.inCluster);
    return Number(await this.server.ask(key, { words: ["LOCK.FENCE", key, token, counter] }));
  }

  /**
   * Releases the lock, or cancels the wait. Returns whether the lock was held. RELEASE is sent again a second later, in
   * the background, if it got no reply, or if a copy of the request may be executed after it.
   */
  async release(until = now() + MAX_BLOCK_MS + this.wanted.lease): Promise<boolean> {
    this.isCancelled = true;
    const words = ["LOCK.RELEASE", this.key, this.token];
    const command: Command = { words, script: this.#script(scripts.RELEASE) };
    try {
      return (await this.server.ask(this.key, command)) !== null;
    } catch (error) {
      // After a lost connection, a repeated RELEASE finds nothing if the first one has worked.
      if (isNotHeld(error)) return command.isRepeated === true;
      this.isDoubtful ||= isPassing(error);
      throw error;
    } finally {
      if (this.isDoubtful && now() < until) {
        this.isDoubtful = false;
        setTimeout(() => this.release(until).catch(() => {}), RETRY_RELEASE_MS).unref();
      }
    }
  }

  #words(): string[] {
    const { lease, kind, permits, session } = this.wanted;
    const words: string[] = [NAMES[kind], this.key, this.token, "PX", String(lease)];
    if (kind === "reentrant") words.push("HOLD", "1");
    if (permits !== undefined) words.push("LIMIT", String(permits));
    if (session) words.push("SESSION", "GRACE", String(this.grace));
    return words;
  }

  /** Sessions and shares need the module. */
  #script(text: string, ...args: (string | number)[]): string[] | undefined {
    if (this.wanted.session || this.wanted.kind === "shared") return undefined;
    return ["EVAL", text, "1", this.key, this.token, ...args.map(String)];
  }
}
