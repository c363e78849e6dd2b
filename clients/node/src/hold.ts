import { acquire, release, take } from "./acquire.js";
import type { Connection } from "./connection.js";
import { isNotHeld, isPassing, LockLostError, publicError, ServerError } from "./errors.js";
import { type Command, fieldsOf, type Request } from "./request.js";
import type { Server } from "./server.js";
import { hashTag } from "./slots.js";
import { Deferred, MAX_TIMER_MS, now } from "./time.js";

const RETRY_MS = 100;

/** A lock that this process holds: released, extended, renewed, and watched until it is lost. */
export class Hold {
  state: "held" | "lost" | "released" = "held";
  /** How many times its holder has acquired it. */
  #count = 1;
  /** The lease in milliseconds, when it ends by the local clock, and when it is renewed. */
  #lease: number;
  #endsAt: number;
  #renewAt = Number.POSITIVE_INFINITY;
  /** The connection that the session belongs to. */
  #sessionOn: Connection | undefined;
  readonly #lost = new AbortController();
  #isWatched = false;
  /** Ends the pause of the watch, or the next one if it is reading the lock. */
  #news = new Deferred<void>();
  #endTimer: NodeJS.Timeout | undefined;

  constructor(
    /** The name of the lock, as the caller gave it. */
    readonly name: string,
    readonly server: Server,
    readonly request: Request,
  ) {
    const { lease, session, renew } = request.wanted;
    this.#lease = lease;
    this.#endsAt = request.sentAt + lease;
    if (renew) this.#renewAt = request.sentAt + lease / 3;
    if (session) this.#sessionOn = server.connection(request.key);
    if (renew || session) this.#watch();
  }

  /** Acquires a lock. Returns null if it was not free within `wait`. */
  static async acquire(
    name: string,
    server: Server,
    request: Request,
    wait: number,
    signal?: AbortSignal,
  ): Promise<Hold | null> {
    try {
      return (await acquire(server, request, wait, signal)) ? new Hold(name, server, request) : null;
    } catch (error) {
      throw publicError(name, error);
    }
  }

  get isHeld(): boolean {
    return this.state === "held" && (now() < this.#endsAt || this.#sessionOn !== undefined);
  }

  /** Aborted with a LockLostError when the lock is lost, which is watched from the first time that this is read. */
  get signal(): AbortSignal {
    this.#watch();
    return this.#lost.signal;
  }

  /** Notes one more acquisition by the holder of a re-entrant lock. */
  async enter(lease: number): Promise<void> {
    if (!this.isHeld) throw this.#loss();
    if (now() + lease > this.#endsAt) await this.extend(lease);
    if (this.state !== "held") throw this.#loss();
    this.#count++;
  }

  /** Gives back one acquisition; the last one releases the lock. */
  async release(): Promise<void> {
    const loss = this.#loss();
    if (--this.#count > 0) {
      if (!this.isHeld) throw loss;
      return;
    }
    const wasLost = this.state === "lost";
    if (!wasLost) this.#end("released");
    const wasHeld = await release(this.server, this.request).catch((error) => {
      throw wasLost ? loss : publicError(this.name, error);
    });
    if (wasLost || !wasHeld) throw loss;
  }

  /** Releases a lock whose object was collected by the garbage collection. */
  abandon(): void {
    if (!this.isHeld) return;
    process.emitWarning(`lock "${this.name}" was not released before its object was collected`);
    this.release().catch(() => {});
    if (this.state === "released") this.#lost.abort(this.#loss());
  }

  /** Sets the lease, from now on. */
  async extend(lease: number): Promise<void> {
    if (this.state !== "held") throw this.#loss();
    const askedAt = now();
    // It may be shorter even if the reply is lost.
    this.#setEnd(Math.min(this.#endsAt, askedAt + lease));
    await this.#ask(this.request.extend(lease));
    this.#lease = lease;
    this.#noteExtended(askedAt, lease);
    this.#news.resolve();
  }

  /** Leaves the lock to the end of its lease. */
  stopRenewing(): void {
    this.#renewAt = Number.POSITIVE_INFINITY;
  }

  /** Returns the next fencing token of the lock. Its counter is in the slot of the key. */
  async fence(): Promise<number> {
    const { key, token } = this.request;
    const counter = hashTag(key) === key ? `{${key}}:fence` : `${key}:fence`;
    return Number(await this.#ask({ words: ["LOCK.FENCE", key, token, counter] }));
  }

  /** Sends a command of the holder. Throws a LockLostError if the lock is not held. */
  async #ask(command: Command): Promise<unknown> {
    if (this.state !== "held") throw this.#loss();
    try {
      return await this.server.ask(this.request.key, command);
    } catch (error) {
      if (!isNotHeld(error)) throw publicError(this.name, error);
      this.#lose();
      throw this.#loss();
    }
  }

  #loss(): LockLostError {
    const text = this.state === "released" ? "it has been released" : "it is no longer held";
    return new LockLostError(this.name, text);
  }

  #lose(): void {
    if (this.state !== "held") return;
    this.#end("lost");
    this.#lost.abort(this.#loss());
    // The server may still renew it.
    if (this.request.wanted.session) release(this.server, this.request).catch(() => {});
  }

  #end(state: "lost" | "released"): void {
    this.state = state;
    clearTimeout(this.#endTimer);
    this.#news.resolve();
  }

  #setEnd(endsAt: number): void {
    this.#endsAt = endsAt;
    clearTimeout(this.#endTimer);
    if (!this.#isWatched || this.state !== "held") return;
    this.#endTimer = setTimeout(() => this.#checkEnd(), Math.min(endsAt - now(), MAX_TIMER_MS));
  }

  #checkEnd(): void {
    if (now() < this.#endsAt) this.#setEnd(this.#endsAt);
    else if (this.#sessionOn) this.#news.resolve();
    else this.#lose();
  }

  #noteExtended(askedAt: number, lease: number): void {
    this.#setEnd(askedAt + lease);
    if (this.#renewAt !== Number.POSITIVE_INFINITY) this.#renewAt = askedAt + lease / 3;
  }

  /** Renews and watches the lock until it is lost or released. */
  async #watch(): Promise<void> {
    if (this.#isWatched || this.state !== "held") return;
    this.#isWatched = true;
    this.#setEnd(this.#endsAt);
    const changed = () => this.#news.resolve();
    this.server.news.on(`key ${this.request.key}`, changed);
    while (this.state === "held") {
      this.#news = new Deferred();
      const nextAt = await this.#look().catch((error) => this.#failed(error));
      if (this.state === "held") await this.#news.within(nextAt - now(), undefined);
    }
    this.server.news.off(`key ${this.request.key}`, changed);
  }

  /** Renews the lease if it is time, and asks whether the lock is held. Returns when to look again. */
  async #look(): Promise<number> {
    const { server, request } = this;
    const { session } = request.wanted;
    if (session) await this.#keepSession();
    const askedAt = now();
    if (askedAt >= this.#renewAt) {
      const lease = this.#lease;
      await server.ask(request.key, request.extend(lease));
      this.#noteExtended(askedAt, lease);
    }
    await server.connection(request.key).track();
    const lookedAt = now();
    const left = await this.#leaseLeft();
    if (left === null) this.#lose();
    else this.#setEnd(lookedAt + left);
    if (!session || left === null) return this.#renewAt;
    // The server renews the lease of a session each time that a third of it has passed, unless it has lost the session.
    if (left >= this.#lease / 2) return lookedAt + this.#lease / 3;
    this.#sessionOn = undefined;
    return lookedAt;
  }

  /** Only the server's word ends a watch; returns when to look again. */
  #failed(error: unknown): number {
    if (isNotHeld(error)) this.#lose();
    return now() + (isPassing(error) ? RETRY_MS : Math.max(this.#lease / 3, RETRY_MS));
  }

  /** Gives the lock to a session of the present connection, if the former one is lost and it is still held. */
  async #keepSession(): Promise<void> {
    const { server, request } = this;
    if (this.#sessionOn?.isClosed) {
      this.#sessionOn = undefined;
      // The grace period has begun.
      this.#setEnd(Math.min(this.#endsAt, now() + request.grace - RETRY_MS));
    }
    if (this.#sessionOn) return;
    // The request alone would acquire a lock that is free by now.
    await server.ask(request.key, request.extend(this.#lease));
    if (!(await take(server, request))) throw new ServerError("NOTHELD the lock was lost with its session");
    this.#sessionOn = server.connection(request.key);
    this.#setEnd(request.sentAt + this.#lease);
  }

  /** Returns what remains of the lease in milliseconds, null if the lock is not held. */
  async #leaseLeft(): Promise<number | null> {
    const { server, request } = this;
    if (request.wanted.kind !== "shared") {
      const fields = fieldsOf(await server.ask(request.key, request.info()));
      if (String(fields.get("owner")) !== request.token) return null;
      const left = Number(fields.get("lease-ms"));
      return left < 0 ? Number.POSITIVE_INFINITY : left;
    }
    const [end, time] = await Promise.all([
      server.exchange(request.key, { words: ["ZSCORE", request.key, request.token] }),
      server.exchange(request.key, { words: ["TIME"] }),
    ]);
    if (end === null) return null;
    const [seconds, micros] = time as [string, string];
    const left = Number(String(end).replace("inf", "Infinity")) - Number(seconds) * 1000 - Number(micros) / 1000;
    return left < 0 ? null : left;
  }
}
