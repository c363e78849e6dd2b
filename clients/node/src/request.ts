import { randomUUID } from "node:crypto";
import type { Connection } from "./connection.js";
import { ServerError } from "./errors.js";
import { DEFAULT_LEASE_MS, isShare, type LockOptions } from "./options.js";
import { Disconnected, hasCode, isNotHeld, isPassing } from "./replies.js";
import type { Server } from "./server.js";
import { counterOf } from "./slots.js";
import { later, now, within } from "./time.js";

export interface Command {
  readonly words: readonly string[];
  /** The acquisition that the command asks for. */
  readonly request?: Request;
  /** Whose command it is: once that is over, it is not sent any more. */
  readonly holder?: Request;
  /** It was sent again after a lost connection, or may not be. */
  isRepeated?: boolean;
}

/** What a caller asks for. */
export type Wanted = ReturnType<typeof wantedOf>;

/** The longest time for which a session's lock is kept after a lost connection, in milliseconds. */
export const MAX_GRACE_MS = 1_000;
/** The longest wait that the server is asked for: a process that is gone without notice keeps its place no longer. */
export const MAX_BLOCK_MS = 15_000;
/** When RELEASE is sent again, if a request may reach the server after the first one. A caller waits no longer for its reply. */
export const RETRY_RELEASE_MS = 1_000;
/** The request is sent again after this time without a message. Less than lock.rejoin-grace-ms. */
export const SILENCE_MS = 5_000;
/** A server that has replied so lately needs no question: the first waiter of a queue asks more often. */
export const HEARD_MS = 6_000;
/** How long a server that has replied may be unreachable, if `wait` does not end before. */
export const OUTAGE_MS = 60_000;
/** A grant is late if this part of the lease has passed since the request. */
export const LATE = 20;
/** A lease is renewed when this part of it has passed. */
export const RENEWALS = 3;
/** The pauses between two attempts in an outage, and where the server cannot send messages: they grow. */
const FIRST_PAUSE_MS = 10;
export const LAST_PAUSE_MS = 100;
const NAMES = { mutex: "LOCK.ACQUIRE", reentrant: "LOCK.REENTER", shared: "LOCK.SHARE" };

/** Returns what the options mean: without a lease 30 s, which this process renews. */
export function wantedOf(options: LockOptions) {
  const { lease = DEFAULT_LEASE_MS, permits, maxWaiters, session = false } = options;
  const kind = options.reentrant ? "reentrant" : isShare(options) ? "shared" : "mutex";
  const renew = options.renew ?? (options.lease === undefined && !session);
  return { lease, kind, permits, maxWaiters, session, renew, grace: Math.min(lease, MAX_GRACE_MS) } as const;
}

/** One acquisition of a lock, with a token of its own: what is sent to the server for it. */
export class Request {
  /** Ends what it waits for with an event: a message of the server, a lost connection. */
  wake: (event: string) => void = () => {};
  /** How many copies of it the server may have executed or may execute: it may keep a queue entry or the lock for it. */
  copies = 0;
  /** A copy of it was lost with its connection, and may be executed late. */
  isDoubtful = false;
  /** It is over, or a RELEASE is on its way, which nothing may follow: nothing is sent for it, to no node, and not as a script. */
  isCancelled = false;
  /** The time before it was sent last. The lease counts from there. */
  sentAt = now();
  readonly key: string;
  /** Random and used once. LOCK.INFO shows its label to people. */
  readonly token: string;
  readonly wanted: Wanted;

  constructor(
    readonly server: Server,
    prefix: string,
    /** The name of the lock, as the caller gave it. */
    readonly name: string,
    options: LockOptions,
    token?: string,
  ) {
    this.key = prefix + name;
    this.wanted = wantedOf(options);
    this.token = token ?? (options.label === undefined ? randomUUID() : `${options.label}:${randomUUID()}`);
  }

  get connection(): Connection {
    return this.server.connection(this.key);
  }

  /** Asks for the lock without waiting, and not again after `until`. Returns whether it is held. It counts once, however often it is sent. */
  async take(until = Number.POSITIVE_INFINITY): Promise<boolean> {
    this.sentAt = now();
    return (await this.server.ask(this.key, { words: this.#words(), request: this }, until)) !== null;
  }

  /**
   * Asks for the lock that the token holds, which begins a session. It is sent once, and an EXTEND comes before it each time:
   * alone it would acquire a lock that is free by now. Returns whether it is held.
   */
  async beginSession(): Promise<boolean> {
    this.sentAt = now();
    return (await this.server.ask(this.key, { words: this.#words(), request: this, isRepeated: true })) !== null;
  }

  /** Sets the lease of a lock that the token holds, and begins a session if one is wanted. */
  async takeOver(isRepeated = false): Promise<void> {
    await this.setLease(this.wanted.lease);
    if (!this.wanted.session) return;
    const isHeld = await this.beginSession().catch((error) => {
      if (isRepeated || !(error instanceof Disconnected)) throw error;
    });
    if (isHeld === undefined) return this.takeOver(true);
    if (!isHeld) throw new ServerError("NOTHELD the lock was lost with its session");
  }

  /** Returns the event that wakes the request, "late" if there is none in so many milliseconds. */
  #event(ms: number): Promise<string> {
    return new Promise((resolve) => {
      const timer = later(ms, resolve, "late");
      this.wake = (event) => {
        clearTimeout(timer);
        resolve(event);
      };
    });
  }

  /** Asks for the lock until it is granted or the deadline is over. An outage that lasts until then is an error. */
  async attempt(deadline: number): Promise<boolean> {
    const { server, wanted } = this;
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LAST_PAUSE_MS)) {
      try {
        if (await this.take(deadline + SILENCE_MS)) return true;
        if (this.isCancelled || now() >= deadline) return false;
        const event = await this.#waitInQueue(deadline);
        // The lease of a grant that was heard very late may have ended.
        const isLate = now() - this.sentAt > wanted.lease - wanted.lease / RENEWALS;
        if (event === "granted" && (wanted.session || !isLate)) return true;
        // All others, such as "replaced" (a late copy of the request has its place), have the same answer.
        if (event) continue;
      } catch (error) {
        const isOver = this.isCancelled || now() >= deadline || now() - server.heardAt > OUTAGE_MS;
        if (isOver || !isPassing(error)) throw error;
      }
      await this.#event(Math.min(pause * (0.5 + Math.random() / 2), deadline - now()));
    }
  }

  /** Waits in the queue of the server. Returns the event that has ended the wait, undefined if the server cannot send one. */
  async #waitInQueue(deadline: number): Promise<string | undefined> {
    const { server, key, token, connection } = this;
    let channel: string | undefined;
    try {
      if (server.hasModule) channel = await connection.channel(key);
      if (!channel) return undefined;
      server.waits.set(token, this);
      const event = this.#event(Math.min(SILENCE_MS, deadline - now()));
      this.sentAt = now();
      const reply = await server.ask(key, this.join(deadline - this.sentAt, channel));
      return reply === "WAITING" ? await event : "granted";
    } catch (error) {
      // No module, no channel or right to one, or in a cluster a slot that has moved.
      const codes = `MODULE NOSUBSCRIBER${server.driver.inCluster ? " ERR NOPERM" : ""}`;
      if (!(error instanceof ServerError) || (channel && !hasCode(error, codes))) throw error;
      if (channel) connection.subscription = undefined;
      else if (error.code === "MOVED") connection.close();
      return undefined;
    } finally {
      server.waits.delete(token);
      this.wake("over");
    }
  }

  /** Ends the request without the lock: the server forgets it. */
  async withdraw(): Promise<void> {
    this.isCancelled = true;
    const freed = this.copies > 0 && this.free().catch(() => {});
    this.wake("over");
    // In an outage, no caller waits for the reply.
    if (freed && !this.isDoubtful) await within(freed, RETRY_RELEASE_MS, undefined);
  }

  /** Returns the command that joins the queue of the server: a message on the channel ends the wait. */
  join(ms: number, channel: string): Command {
    const block = Math.ceil(Math.min(Math.max(ms, 1), MAX_BLOCK_MS));
    const words = [...this.#words(), "BLOCK", String(block), "NOTIFY", channel];
    if (this.wanted.maxWaiters !== undefined) words.push("MAXWAITERS", String(this.wanted.maxWaiters));
    // It is not sent again after a lost connection: the next attempt asks first whether the lock is held.
    return { words, request: this, isRepeated: true };
  }

  /** Sets the lease, from now on. */
  async setLease(lease: number): Promise<void> {
    const words = ["LOCK.EXTEND", this.key, this.token, "PX", String(lease)];
    await this.server.ask(this.key, { words, holder: this });
  }

  /** Returns the next fencing token of the lock. Its counter is in the slot of the key. */
  async fence(): Promise<number> {
    const counter = counterOf(this.key, this.server.driver.inCluster);
    const words = ["LOCK.FENCE", this.key, this.token, counter];
    return Number(await this.server.ask(this.key, { words }));
  }

  /**
   * Releases the lock, or cancels the wait. Returns whether the lock was held. RELEASE is sent again a second later, in
   * the background, if it got no reply, or if a copy of the request may be executed after it.
   */
  async free(until = now() + MAX_BLOCK_MS + this.wanted.lease): Promise<boolean> {
    this.isCancelled = true;
    const command: Command = { words: ["LOCK.RELEASE", this.key, this.token] };
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
        setTimeout(() => this.free(until).catch(() => {}), RETRY_RELEASE_MS).unref();
      }
    }
  }

  #words(): string[] {
    const { lease, kind, permits, session, grace } = this.wanted;
    const words: string[] = [NAMES[kind], this.key, this.token, "PX", String(lease)];
    if (kind === "reentrant") words.push("HOLD", "1");
    if (permits !== undefined) words.push("LIMIT", String(permits));
    if (session) words.push("SESSION", "GRACE", String(grace));
    return words;
  }
}
