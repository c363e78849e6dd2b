import { randomBytes } from "node:crypto";
import * as scripts from "./scripts.js";
import { now } from "./time.js";

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
  /** The server renews the lease while the connection is open. */
  readonly session?: boolean;
  /** This process renews the lease. */
  readonly renew?: boolean;
}

/** The longest time for which a session's lock is kept after a lost connection, in milliseconds. */
const MAX_GRACE_MS = 1000;
const NAMES = { mutex: "LOCK.ACQUIRE", reentrant: "LOCK.REENTER", shared: "LOCK.SHARE" } as const;

/** One acquisition of a lock, with a token of its own. */
export class Request {
  /** The server may keep a place in the queue or the lock for it. */
  isKnown = false;
  /** A copy of it was lost with its connection, and may be executed late. */
  isDoubtful = false;
  /** A RELEASE is on its way, which nothing may follow: it is not sent any more, to no node, and not as a script. */
  isCancelled = false;
  /** The time before it was sent last. The lease counts from there. */
  sentAt = now();

  constructor(
    readonly key: string,
    readonly wanted: Wanted,
    readonly token: string,
  ) {}

  /** Notes that it is about to be sent. Returns what notes that the connection is lost. */
  noteSent(): (sent: boolean) => void {
    const wasKnown = this.isKnown;
    this.isKnown = true;
    return (sent) => {
      if (sent) this.isDoubtful = true;
      else this.isKnown = wasKnown;
    };
  }

  /** Returns the grace period of the session, in milliseconds. */
  get grace(): number {
    return Math.min(this.wanted.lease, MAX_GRACE_MS);
  }

  /** Returns the command that asks for the lock, without waiting. It counts once, however often it is sent. */
  take(): Command {
    const { lease, kind } = this.wanted;
    const script = this.#script(scripts.TAKE, lease, kind === "reentrant" ? "hash" : "string");
    return { words: this.#acquire(), script, request: this };
  }

  /** Returns the command that waits for the lock; a message on the channel ends the wait. */
  wait(ms: number, channel: string): Command {
    const block = String(Math.max(1, Math.floor(ms)));
    return { words: [...this.#acquire(), "BLOCK", block, "NOTIFY", channel], request: this };
  }

  /** Returns the command that releases the lock, or cancels the wait. */
  release(): Command {
    this.isCancelled = true;
    return { words: ["LOCK.RELEASE", this.key, this.token], script: this.#script(scripts.RELEASE) };
  }

  /** Returns the command that sets the lease. */
  extend(lease: number): Command {
    const words = ["LOCK.EXTEND", this.key, this.token, "PX", String(lease)];
    return { words, script: this.#script(scripts.EXTEND, lease) };
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

  /** Sessions and shares need the module. */
  #script(text: string, ...args: (string | number)[]): string[] | undefined {
    if (this.wanted.session || this.wanted.kind === "shared") return undefined;
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
  if (typeof reply[0] === "object") return new Map(reply.map(({ key, value }) => [String(key), value]));
  const fields = new Map<string, unknown>();
  for (let n = 0; n < reply.length; n += 2) fields.set(String(reply[n]), reply[n + 1]);
  return fields;
}
