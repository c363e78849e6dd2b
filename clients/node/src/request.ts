import { randomBytes } from "node:crypto";
import type { Connection } from "./connection.js";
import * as scripts from "./scripts.js";
import { now } from "./time.js";

/** A command, and the script that stands in for it without the module, if there is one. */
export interface Command {
  readonly words: readonly string[];
  readonly script?: readonly string[] | undefined;
  readonly trace?: Trace;
}

/** What becomes of a command. */
export interface Trace {
  /** Receives the connections on which it may be executed. */
  readonly sentOn: Set<Connection>;
  /** It is not sent any more: not to another node, not as a script, not after a lost connection. */
  readonly isCancelled?: boolean;
}

/** What a caller asks for. */
export interface Wanted {
  readonly key: string;
  /** The lease in milliseconds. */
  readonly lease: number;
  readonly kind: "mutex" | "reentrant" | "shared";
  /** How many holders a shared lock may have; without it any number. */
  readonly permits?: number | undefined;
  readonly session: boolean;
}

/** The longest time for which a session's lock is kept after a lost connection, in milliseconds. */
const MAX_GRACE_MS = 1000;
const NAMES = { mutex: "LOCK.ACQUIRE", reentrant: "LOCK.REENTER", shared: "LOCK.SHARE" } as const;

/** One acquisition of a lock, with a token of its own. */
export class Request implements Trace {
  readonly key: string;
  /** The connections on which it was sent, while the server may keep a place in the queue or the lock for it. */
  readonly sentOn = new Set<Connection>();
  /** A RELEASE is on its way, which nothing may follow. */
  isCancelled = false;
  /** The time before it was sent last. The lease counts from there. */
  sentAt = 0;
  /** How many times it was sent. */
  times = 0;

  constructor(
    readonly wanted: Wanted,
    readonly token: string,
  ) {
    this.key = wanted.key;
  }

  /** Notes that it is about to be sent. Returns whether the server may know it from before. */
  noteSent(): boolean {
    this.times++;
    this.sentAt = now();
    return this.sentOn.size > 0;
  }

  /** Notes that a RELEASE was answered: on the only connection that has carried the request, it was the last word. */
  answeredOn(connections: ReadonlySet<Connection>): void {
    for (const connection of this.sentOn) {
      if (connections.size === 1 && connections.has(connection)) this.sentOn.delete(connection);
    }
  }

  /** Returns the grace period of the session, in milliseconds. */
  get grace(): number {
    return Math.min(this.wanted.lease, MAX_GRACE_MS);
  }

  /** Returns the command that asks for the lock, without waiting. It counts once, however often it is sent. */
  take(): Command {
    const { lease, kind, session } = this.wanted;
    const needsModule = session || kind === "shared";
    const type = kind === "reentrant" ? "hash" : "string";
    const script = needsModule ? undefined : this.#script(scripts.TAKE, lease, type);
    return { words: this.#acquire(), script, trace: this };
  }

  /** Returns the command that waits for the lock; a message on the channel ends the wait. */
  wait(ms: number, channel: string): Command {
    const block = String(Math.max(1, Math.floor(ms)));
    return { words: [...this.#acquire(), "BLOCK", block, "NOTIFY", channel], trace: this };
  }

  /** Returns the command that releases the lock, or cancels the wait. */
  release(trace: Trace): Command {
    this.isCancelled = true;
    return { words: ["LOCK.RELEASE", this.key, this.token], script: this.#scriptUnlessShared(scripts.RELEASE), trace };
  }

  /** Returns the command that sets the lease. */
  extend(lease: number): Command {
    const words = ["LOCK.EXTEND", this.key, this.token, "PX", String(lease)];
    return { words, script: this.#scriptUnlessShared(scripts.EXTEND, lease) };
  }

  /** Returns the command that reads the holder and the lease of a lock which is not shared. */
  info(): Command {
    return { words: ["LOCK.INFO", this.key], script: this.#script(scripts.INFO) };
  }

  #acquire(): string[] {
    const { lease, kind, permits, session } = this.wanted;
    const words: string[] = [NAMES[kind], this.key, this.token, "PX", String(lease)];
    if (kind === "reentrant") words.push("HOLD", "1");
    if (permits !== undefined) words.push("LIMIT", String(permits));
    if (session) words.push("SESSION", "GRACE", String(this.grace));
    return words;
  }

  #scriptUnlessShared(text: string, ...args: number[]): string[] | undefined {
    return this.wanted.kind === "shared" ? undefined : this.#script(text, ...args);
  }

  #script(text: string, ...args: (string | number)[]): string[] {
    return ["EVAL", text, "1", this.key, this.token, ...args.map(String)];
  }
}

/** Returns a token that is used once. LOCK.INFO shows its label to people. */
export function newToken(label?: string): string {
  const random = randomBytes(16).toString("hex");
  return label === undefined ? random : `${label}:${random}`;
}

/** Returns the fields of a reply that is a map, a list of pairs, or a flat list, as libraries and protocols differ. */
export function fieldsOf(reply: unknown): Map<string, unknown> {
  if (reply instanceof Map) return reply;
  if (!Array.isArray(reply)) return new Map(Object.entries(reply as object));
  if (reply.every((pair) => typeof pair === "object" && pair !== null && "key" in pair)) {
    return new Map(reply.map(({ key, value }) => [String(key), value]));
  }
  const fields = new Map<string, unknown>();
  for (let n = 0; n < reply.length; n += 2) fields.set(String(reply[n]), reply[n + 1]);
  return fields;
}
