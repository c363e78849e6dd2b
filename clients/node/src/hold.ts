/*
 * A lock that this process asks for is a state machine. Its end is that of the lease by the local clock, counted from before
 * the request or extension; while a session is open, there is none.
 *
 * | state    | event                                            | next     | action                                      |
 * |----------|--------------------------------------------------|----------|---------------------------------------------|
 * | waiting  | the server grants it                             | held     | nothing                                     |
 * | held     | release, the last one                            | released | RELEASE                                     |
 * | held     | the end has come                                 | lost     | the signal is aborted                       |
 * | held     | the server says that the token does not hold it  | lost     | the signal is aborted; RELEASE of a session |
 * | held     | the grant was heard late                         | held     | EXTEND; its reply sets the end              |
 * | held     | extend; a third of the lease has passed, renewed | held     | EXTEND; its reply sets the end              |
 * | held     | the connection of the session is lost            | held     | the end is that of the grace period; EXTEND,|
 * |          |                                                  |          | then the request: a session without end     |
 * | held     | detach                                           | released | nothing                                     |
 * | lost     | release                                          | released | RELEASE; LockLostError                      |
 * | released | all                                              | released | LockLostError                               |
 *
 * The end and the server are watched once the signal was read, or if the lock is renewed or has a session.
 */
import type { Connection } from "./connection.js";
import { LockLostError } from "./errors.js";
import { isNotHeld, publicError } from "./replies.js";
import { LATE, RENEWALS, Request, type Wanted } from "./request.js";
import { later, now, RETRY_MS } from "./time.js";
import { Watch } from "./watch.js";

/** A renewal that failed is tried again after this part of the lease, at most after this time. */
const RETRIES = 100;
const MAX_RETRY_MS = 1_000;

/** A lock that this process asks for and then holds: released, extended, renewed, and watched until it is lost. */
export class Hold extends Request {
  state: "waiting" | "held" | "lost" | "released" = "waiting";
  /** How many times its holder has acquired it and not released it. */
  count = 0;
  /** The lease is renewed, by this process or the server. */
  isRenewed = this.wanted.renew || this.wanted.session;
  #lease = this.wanted.lease;
  /** When the lease ends by the local clock. While a session is open, it does not. */
  endsAt = 0;
  /** When the next renewal is due: none while an EXTEND is under way, because it would undo that. */
  #renewAt = 0;
  #extensions = 0;
  /** How often the lease was changed. */
  #changes = 0;
  /** The connection that the session belongs to. */
  #session: Connection | undefined;
  #lost: AbortController | undefined;
  #watch: Watch | undefined;
  #timer: NodeJS.Timeout | undefined;

  /** Begins to hold the lock, which was granted. */
  begin(): void {
    const { server, token, wanted } = this;
    if (server.tokens.has(token)) throw new TypeError(`lock "${this.name}": this process holds it by this token`);
    server.tokens.add(token);
    this.state = "held";
    if (wanted.session) this.#session = this.connection;
    this.#leaseFrom(this.sentAt, wanted.lease);
    if (this.isRenewed) this.#startWatch();
    // The whole lease counts from a late grant. Without a reply to this EXTEND, only the certain part does.
    if (!wanted.session && now() - this.sentAt > wanted.lease / LATE) this.extend(wanted.lease).catch(() => {});
  }

  get isHeld(): boolean {
    return this.state === "held" && now() < this.endsAt;
  }

  /** Aborted with a LockLostError when the lock is lost, which is watched from the first time that this is read. */
  get signal(): AbortSignal {
    this.#lost ??= new AbortController();
    if (this.state === "lost") this.#lost.abort(this.#loss());
    this.#startWatch();
    return this.#lost.signal;
  }

  /** Lets the holder of a re-entrant lock acquire it once more: the lease is at least that of the options, and renewed if they say so. */
  async enter({ lease, renew, session }: Wanted): Promise<void> {
    if (session && !this.wanted.session) throw new TypeError(`lock "${this.name}": it is held without a session`);
    if (!this.isHeld) throw this.#loss();
    const rest = Math.ceil(this.endsAt - now());
    const isNew = renew && !this.isRenewed;
    this.isRenewed ||= renew;
    if (isNew || lease > rest) await this.extend(Math.max(lease, rest));
    if (isNew) this.#startWatch();
    if (this.state !== "held") throw this.#loss();
  }

  /** Gives back one acquisition; the last one releases the lock. */
  async release(): Promise<void> {
    if (--this.count > 0 && this.isHeld) return;
    const wasLost = this.state !== "held" || this.count > 0;
    this.#end("released");
    const wasHeld = await this.free().catch((error) => {
      if (!wasLost) throw publicError(this.name, error);
    });
    if (wasLost || !wasHeld) throw this.#loss("lost");
  }

  /** Releases a lock whose object was collected by the garbage collection. */
  abandon(): void {
    if (!this.isHeld) return;
    process.emitWarning(`lock "${this.name}" was not released before its object was collected`);
    this.release().catch(() => {});
    if (this.state === "released") this.#lost?.abort(this.#loss());
  }

  /** Forgets the lock, which stays held. */
  detach(): void {
    if (!this.isHeld) throw this.#loss();
    if (this.wanted.session) throw new TypeError(`lock "${this.name}": a session belongs to its connection`);
    this.#end("released");
  }

  /** Sets the lease, from now on. */
  extend(lease: number): Promise<void> {
    return this.asHolder(async () => {
      const askedAt = now();
      const change = ++this.#changes;
      this.#extensions++;
      // The lease may be shorter even if the reply is lost.
      this.#schedule(Math.min(this.endsAt, askedAt + lease));
      if (this.isRenewed) this.#renewAt = Math.min(this.#renewAt, askedAt + lease / RENEWALS);
      try {
        await this.setLease(lease);
        // An earlier change without reply may be executed later.
        if (change === this.#changes && this.#extensions === 1) this.#leaseFrom(askedAt, lease);
      } finally {
        this.#extensions--;
        this.#schedule();
      }
    });
  }

  /** Runs a command of the holder. Throws a LockLostError if the lock is not held. */
  async asHolder<T>(command: () => Promise<T>): Promise<T> {
    if (this.state !== "held") throw this.#loss();
    try {
      return await command();
    } catch (error) {
      if (!this.isCancelled && !isNotHeld(error)) throw publicError(this.name, error);
      this.#lose();
      throw this.#loss();
    }
  }

  #loss(state = this.state): LockLostError {
    return new LockLostError(this.name, state === "released" ? "it has been released" : "it is no longer held");
  }

  #lose(): void {
    if (this.state !== "held") return;
    this.#end("lost");
    this.#lost?.abort(this.#loss());
    // The server may still renew it.
    if (this.wanted.session) this.free().catch(() => {});
  }

  #end(state: "lost" | "released"): void {
    this.state = state;
    this.isCancelled = true;
    this.server.tokens.delete(this.token);
    clearTimeout(this.#timer);
    this.#watch?.delete(this);
  }

  #startWatch(): void {
    if (this.#watch || this.state !== "held") return;
    this.#watch = this.server.watches.get(this.key) ?? new Watch(this.server, this.key);
    this.#watch.add(this);
    this.#schedule();
  }

  #leaseFrom(start: number, lease: number): void {
    this.#lease = lease;
    this.#renewAt = this.isRenewed ? start + lease / RENEWALS : Number.POSITIVE_INFINITY;
    // Without its connection, the server may set the lease of a session to the grace period later.
    this.#schedule(start + (this.wanted.session ? Math.min(lease, this.wanted.grace) : lease));
  }

  /** Sets the end, and the timer for what comes next: the renewal or the end. */
  #schedule(endsAt = this.endsAt): void {
    this.endsAt = this.#session ? Number.POSITIVE_INFINITY : endsAt;
    clearTimeout(this.#timer);
    if (!this.#watch || this.state !== "held") return;
    const renewAt = () => (this.#extensions > 0 ? Number.POSITIVE_INFINITY : this.#renewAt);
    const due = () => {
      if (now() >= this.endsAt) this.#lose();
      else if (now() >= renewAt()) void this.#renew();
      else this.#schedule();
    };
    this.#timer = later(Math.min(this.endsAt, renewAt()) - now(), due, undefined);
  }

  /** Renews the lease, or gives the lock to a session of the present connection. Only the server's word ends the lock. */
  async #renew(): Promise<void> {
    const { connection } = this;
    try {
      await this.extend(this.#lease);
      if (!this.wanted.session || this.#session) return;
      if (!(await this.beginSession())) return this.#lose();
      this.#session = connection;
      this.#schedule();
      this.seen();
    } catch {
      // The grace period of a session is short.
      const pause = this.wanted.session ? 0 : Math.min(this.#lease / RETRIES, MAX_RETRY_MS);
      this.#renewAt = now() + Math.max(pause, RETRY_MS);
      this.#schedule();
    }
  }

  /** Notes what the server has replied to the question of who holds the lock, undefined if a connection was lost. */
  seen(isHolding?: boolean): void {
    const { connection, wanted } = this;
    if (isHolding === false) this.#lose();
    if (!this.#session || this.#session === connection) return;
    // The session has ended, or the slot of the key has moved: the grace period has begun.
    this.#session = undefined;
    this.#renewAt = now();
    this.#schedule(now() + wanted.grace - RETRY_MS);
  }
}
