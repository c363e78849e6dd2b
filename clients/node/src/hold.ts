import type { Connection } from "./connection.js";
import { isNotHeld, isPassing, LockLostError, publicError, ServerError } from "./errors.js";
import type { Request } from "./request.js";
import { Deferred, MAX_TIMER_MS, now, within } from "./time.js";

const RETRY_MS = 100;

/** A lock that this process holds: released, extended, renewed, and watched until it is lost. */
export class Hold {
  state: "held" | "lost" | "released" = "held";
  /** How many times its holder has acquired it. */
  #count = 1;
  #lease: number;
  /** When the lease ends by the local clock. While a session is open, it does not. */
  endsAt: number;
  #renewAt: number;
  /** The connection that the session belongs to. */
  #session: Connection | undefined;
  readonly #lost = new AbortController();
  #isWatched = false;
  /** Ends the pause of the watch, or the next one if it is reading the lock. */
  #news = new Deferred<void>();
  #endTimer: NodeJS.Timeout | undefined;

  constructor(
    /** The name of the lock, as the caller gave it. */
    readonly name: string,
    readonly request: Request,
  ) {
    const { lease, session, renew } = request.wanted;
    this.#lease = lease;
    this.endsAt = session ? Number.POSITIVE_INFINITY : request.sentAt + lease;
    this.#renewAt = session || renew ? request.sentAt + lease / 3 : Number.POSITIVE_INFINITY;
    if (session) this.#session = request.connection;
    if (session || renew) this.#watch();
  }

  get isHeld(): boolean {
    return this.state === "held" && now() < this.endsAt;
  }

  /** Aborted with a LockLostError when the lock is lost, which is watched from the first time that this is read. */
  get signal(): AbortSignal {
    this.#watch();
    return this.#lost.signal;
  }

  /** Notes one more acquisition by the holder of a re-entrant lock. */
  async enter(lease: number): Promise<void> {
    if (!this.isHeld) throw this.#loss();
    if (now() + lease > this.endsAt) await this.extend(lease);
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
    const wasHeld = await this.request.release().catch((error) => {
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
    await this.#asHolder(() => this.#extend(lease)).finally(() => this.#news.resolve());
  }

  /** Returns the next fencing token of the lock. */
  fence(): Promise<number> {
    return this.#asHolder(() => this.request.fence());
  }

  /** Runs a command of the holder. Throws a LockLostError if the lock is not held. */
  async #asHolder<T>(command: () => Promise<T>): Promise<T> {
    if (this.state !== "held") throw this.#loss();
    try {
      return await command();
    } catch (error) {
      if (!isNotHeld(error)) throw publicError(this.name, error);
      this.#lose();
      throw this.#loss();
    }
  }

  /** No renewal with the former lease follows an EXTEND, unless that fails. */
  async #extend(lease: number): Promise<void> {
    const askedAt = now();
    const renewAt = this.#renewAt;
    if (renewAt < Number.POSITIVE_INFINITY) this.#renewAt = askedAt + lease / 3;
    // The lease may be shorter even if the reply is lost.
    this.#setEnd(Math.min(this.endsAt, askedAt + lease));
    try {
      await this.request.extend(lease);
    } catch (error) {
      this.#renewAt = renewAt;
      throw error;
    }
    this.#lease = lease;
    this.#setEnd(askedAt + lease);
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
    if (this.request.wanted.session) this.request.release().catch(() => {});
  }

  #end(state: "lost" | "released"): void {
    this.state = state;
    clearTimeout(this.#endTimer);
    this.#news.resolve();
  }

  #setEnd(endsAt: number): void {
    this.endsAt = this.#session ? Number.POSITIVE_INFINITY : endsAt;
    clearTimeout(this.#endTimer);
    if (!this.#isWatched || this.state !== "held") return;
    const check = () => (now() < this.endsAt ? this.#setEnd(this.endsAt) : this.#lose());
    // After a stall of this process, timers are first: the reply to an extension is read before the immediate.
    this.#endTimer = setTimeout(() => setImmediate(check), Math.min(this.endsAt - now(), MAX_TIMER_MS));
  }

  /** Renews and watches the lock until it is lost or released. */
  async #watch(): Promise<void> {
    if (this.#isWatched || this.state !== "held") return;
    this.#isWatched = true;
    this.#setEnd(this.endsAt);
    const { server, key } = this.request;
    const changed = () => this.#news.resolve();
    server.news.on(`key ${key}`, changed);
    while (this.state === "held") {
      this.#news = new Deferred();
      const nextAt = await this.#check().catch((error) => this.#failed(error));
      if (this.state === "held") await this.#news.within(nextAt - now(), undefined);
    }
    server.news.off(`key ${key}`, changed);
  }

  /** Renews the lease if it is time, and asks whether the lock is held. Returns when to check it again. */
  async #check(): Promise<number> {
    const { request } = this;
    if (request.wanted.session) await this.#keepSession();
    if (now() >= this.#renewAt) await this.#extend(this.#lease);
    // A library may open a second connection for it, which must not delay the renewal.
    const tracked = request.connection.track().then(() => true);
    if (!(await within(tracked, this.#renewAt - now(), false))) return now();
    if (!(await request.isHolding())) this.#lose();
    // The slot of the key may have moved.
    return request.wanted.session && request.connection !== this.#session ? now() : this.#renewAt;
  }

  /** Only the server's word ends a watch; returns when to check again. */
  #failed(error: unknown): number {
    if (isNotHeld(error)) this.#lose();
    return now() + (isPassing(error) ? RETRY_MS : Math.max(this.#lease / 3, RETRY_MS));
  }

  /** Gives the lock to a session of the present connection, if the former one is lost and it is still held. */
  async #keepSession(): Promise<void> {
    const { request } = this;
    if (request.connection === this.#session) return;
    // The grace period has begun.
    if (this.#session) {
      this.#session = undefined;
      this.#setEnd(now() + request.grace - RETRY_MS);
    }
    // The request alone would acquire a lock that is free by now.
    await this.#extend(this.#lease);
    if (!(await request.take())) throw new ServerError("NOTHELD the lock was lost with its session");
    this.#session = request.connection;
    this.#setEnd(Number.POSITIVE_INFINITY);
  }
}
