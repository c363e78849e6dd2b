import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "./connection.js";
import { Disconnected, isNotHeld, isPassing, ModuleNeededError, ServerError } from "./errors.js";
import { DEFAULT_LEASE_MS, type LockOptions } from "./options.js";
import { Queue } from "./queue.js";
import * as scripts from "./scripts.js";
import type { Server } from "./server.js";
import { counterOf } from "./slots.js";
import { abortable, Deferred, now, timerMs, within } from "./time.js";

/** A command, and the script that stands in for it without the module, if there is one. */
export interface Command {
  readonly words: readonly string[];
  readonly script?: readonly string[] | undefined;
  /** The acquisition that the command asks for. */
  readonly request?: Request;
  /** It was sent again after a lost connection, or may not be. */
  isRepeated?: boolean;
}

/** What a caller asks for. */
type Wanted = ReturnType<typeof wantedOf>;

/** The longest time for which a session's lock is kept after a lost connection, in milliseconds. */
export const MAX_GRACE_MS = 1_000;
/** The longest wait that the server is asked for: a process that is gone without notice keeps its place no longer. */
export const MAX_BLOCK_MS = 15_000;
/** When RELEASE is sent again, if a request may reach the server after the first one. A caller waits no longer for its reply. */
export const RETRY_RELEASE_MS = 1_000;
/** The request is sent again after this time without a message. Less than lock.rejoin-grace-ms. */
export const SILENCE_MS = 5_000;
/** A server that has replied so lately needs no question: the first waiter of a queue asks more often. */
const HEARD_MS = 6_000;
/** How long a server that has replied may be unreachable, if `wait` does not end before. */
export const OUTAGE_MS = 60_000;
/** The pauses between two attempts in an outage, and where the server cannot send messages: they grow. */
const FIRST_PAUSE_MS = 10;
export const LAST_PAUSE_MS = 100;
const NAMES = { mutex: "LOCK.ACQUIRE", reentrant: "LOCK.REENTER", shared: "LOCK.SHARE" };

let unused: string[] = [];

/** Returns 128 random bits as text. Many are taken at a time: a call costs as much as a request. */
function randomText(): string {
  if (unused.length === 0) unused = randomBytes(4_096).toString("hex").match(/.{32}/g) ?? [];
  return unused.pop() as string;
}

/** Returns what the options mean: without a lease 30 s, which this process renews. */
function wantedOf(options: LockOptions) {
  const { lease = DEFAULT_LEASE_MS, permits, maxWaiters, session = false } = options;
  const kind = options.reentrant ? "reentrant" : options.shared || permits !== undefined ? "shared" : "mutex";
  const renew = options.renew ?? (options.lease === undefined && !session);
  return { lease, kind, permits, maxWaiters, session, renew, grace: Math.min(lease, MAX_GRACE_MS) } as const;
}

/** One acquisition of a lock, with a token of its own: what is sent to the server for it. */
export class Request {
  /** How many copies of it the server may have executed or may execute: it may keep a queue entry or the lock for it. */
  copies = 0;
  /** A copy of it was lost with its connection, and may be executed late. */
  isDoubtful = false;
  /** A RELEASE is on its way, which nothing may follow: it is not sent any more, to no node, and not as a script. */
  isCancelled = false;
  /** The time before it was sent last. The lease counts from there. */
  sentAt = now();
  /** Random and used once. LOCK.INFO shows its label to people. */
  readonly token: string;
  readonly wanted: Wanted;

  constructor(
    readonly server: Server,
    readonly key: string,
    options: LockOptions,
    token?: string,
  ) {
    this.wanted = wantedOf(options);
    this.token = token ?? (options.label === undefined ? randomText() : `${options.label}:${randomText()}`);
  }

  get connection(): Connection {
    return this.server.connection(this.key);
  }

  /** Asks for the lock without waiting, and not again after `until`. Returns whether it is held. It counts once, however often it is sent. */
  async take(signal?: AbortSignal, until = Number.POSITIVE_INFINITY): Promise<boolean> {
    this.sentAt = now();
    const { lease, kind } = this.wanted;
    const script = this.#script(scripts.TAKE, lease, kind === "reentrant" ? "hash" : "string");
    const asked = this.server.ask(this.key, { words: this.#words(), script, request: this }, until);
    return (await abortable(asked, signal)) !== null;
  }

  /**
   * Returns whether the lock was acquired within `wait` milliseconds; 0 is one attempt. If it was not, for whatever reason,
   * the server forgets the request.
   */
  async acquire(wait: number, signal?: AbortSignal): Promise<boolean> {
    signal?.throwIfAborted();
    // One signal may end thousands of waits.
    if (signal) setMaxListeners(0, signal);
    const deadline = now() + wait;
    const { server, key, wanted } = this;
    const queue = wait > 0 ? (server.queues.get(key) ?? new Queue()) : undefined;
    if (queue && queue.length >= (wanted.maxWaiters ?? Number.POSITIVE_INFINITY)) throw new ServerError("QUEUEFULL");
    const turn = queue?.join(wanted.kind === "shared");
    if (queue) server.queues.set(key, queue);
    let [isHeld, isOutage] = [false, false];
    // The timer of a waiter resolves its turn: a promise less for each of a crowd.
    let timer: NodeJS.Timeout | undefined;
    try {
      let hasTurn = !turn || turn.state === "come";
      if (turn && !hasTurn) {
        timer = setTimeout(turn.resolve, timerMs(wait), false);
        hasTurn = await abortable(turn.promise, signal);
      }
      // Without a turn in time, only a server that is lost or silent is asked: one attempt shows whether that is an error.
      const isLost = !hasTurn && server.heardAt < Math.max(this.connection.openedAt, now() - HEARD_MS);
      if (hasTurn || isLost) isHeld = await this.#attempt(deadline, signal);
      return isHeld;
    } catch (error) {
      isOutage = error instanceof Disconnected;
      throw error;
    } finally {
      if (timer) clearTimeout(timer);
      const withdrawn = isHeld || this.copies === 0 ? undefined : this.release().catch(() => {});
      if (turn && queue?.leave(turn) === 0) server.queues.delete(key);
      if (withdrawn && !isOutage) await Promise.race([withdrawn, sleep(RETRY_RELEASE_MS, undefined, { ref: false })]);
    }
  }

  /** Asks for the lock until it is granted or the deadline is over. An outage that lasts until then is an error. */
  async #attempt(deadline: number, signal?: AbortSignal): Promise<boolean> {
    for (let rest = FIRST_PAUSE_MS; ; ) {
      try {
        if (await this.take(signal, deadline + SILENCE_MS)) return true;
        if (now() >= deadline) return false;
        const event = await this.#waitInQueue(deadline, signal);
        if (event === "granted") return true;
        // All others, such as "replaced" (a late copy of the request has its place), have the same answer.
        if (event) continue;
      } catch (error) {
        if (!isPassing(error) || now() >= deadline || now() - this.server.heardAt > OUTAGE_MS) throw error;
      }
      await abortable(sleep(timerMs(Math.min(rest * (0.5 + Math.random() / 2), deadline - now()))), signal);
      rest = Math.min(rest * 2, LAST_PAUSE_MS);
    }
  }

  /** Waits in the queue of the server. Returns the event that has ended the wait, undefined if the server cannot send one. */
  async #waitInQueue(deadline: number, signal?: AbortSignal): Promise<string | undefined> {
    const { server, key, token, connection } = this;
    const channel = server.hasModule && (await abortable(connection.channel(key), signal));
    if (!channel) return undefined;
    const news = new Deferred<string>();
    server.waits.set(token, news.resolve);
    this.sentAt = now();
    try {
      const reply = await abortable(server.ask(key, this.join(deadline - this.sentAt, channel)), signal);
      if (reply !== "WAITING") return "granted";
      return await within(news.promise, Math.min(SILENCE_MS, deadline - now()), "silence", signal);
    } catch (error) {
      // No module, no subscription, or in a cluster a slot that has moved.
      const codes = server.driver.inCluster ? ["NOSUBSCRIBER", "ERR", "NOPERM"] : ["NOSUBSCRIBER"];
      const hasNoChannel = error instanceof ServerError && codes.includes(error.code);
      if (!hasNoChannel && !(error instanceof ModuleNeededError)) throw error;
      connection.subscription = undefined;
      return undefined;
    } finally {
      server.waits.delete(token);
    }
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
  async extend(lease: number): Promise<void> {
    const words = ["LOCK.EXTEND", this.key, this.token, "PX", String(lease)];
    await this.server.ask(this.key, { words, script: this.#script(scripts.EXTEND, lease) });
  }

  /** Returns the next fencing token of the lock. Its counter is in the slot of the key. */
  async fence(): Promise<number> {
    const counter = counterOf(this.key, this.server.driver.inCluster);
    return Number(await this.server.ask(this.key, { words: ["LOCK.FENCE", this.key, this.token, counter] }));
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
    const { lease, kind, permits, session, grace } = this.wanted;
    const words: string[] = [NAMES[kind], this.key, this.token, "PX", String(lease)];
    if (kind === "reentrant") words.push("HOLD", "1");
    if (permits !== undefined) words.push("LIMIT", String(permits));
    if (session) words.push("SESSION", "GRACE", String(grace));
    return words;
  }

  /** Sessions and shares need the module. */
  #script(text: string, ...args: (string | number)[]): string[] | undefined {
    if (this.wanted.session || this.wanted.kind === "shared") return undefined;
    return ["EVAL", text, "1", this.key, this.token, ...args.map(String)];
  }
}
