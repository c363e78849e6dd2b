/*
 * A lock that this process holds is a state machine. Its end is that of the lease by the local clock, counted from before
 * the request or extension; while a session is open, there is none.
 *
 * | state    | event                                            | next     | action                                      |
 * |----------|--------------------------------------------------|----------|---------------------------------------------|
 * | held     | release, the last one                            | released | RELEASE                                     |
 * | held     | the end has come                                 | lost     | the signal is aborted                       |
 * | held     | the server says that the token does not hold it  | lost     | the signal is aborted; RELEASE of a session |
 * | held     | the grant was heard late                         | held     | EXTEND; its reply sets the end              |
 * | held     | extend; a third of the lease has passed, renewed | held     | EXTEND; its reply sets the end              |
 * | held     | the connection of the session is lost            | held     | the end is that of the grace period; EXTEND,|
 * |          |                                                  |          | then the request: a session without end     |
 * | held     | detach                                           | released | nothing                                     |
 * | lost     | release                                          | lost     | RELEASE; LockLostError                      |
 * | released | all                                              | released | LockLostError                               |
 *
 * The end and the server are watched once the signal was read, or if the lock is renewed or has a session.
 */
import type { Connection } from "./connection.js";
import { isNotHeld, isPassing, LockLostError, publicError, ServerError } from "./errors.js";
import type { Request } from "./request.js";
import { now, RETRY_MS, timerMs } from "./time.js";
import { Watch } from "./watch.js";

/** A grant is late if this part of the lease has passed since the request. */
export const LATE = 20;
/** A lease is renewed when this part of it has passed. */
export const RENEWALS = 3;

/** A lock that this process holds: released, extended, renewed, and watched until it is lost. */
export class Hold {
  state: "held" | "lost" | "released" = "held";
  /** How many times its holder has acquired it. */
  #count = 1;
  #lease!: number;
  /** When the lease ends by the local clock. While a session is open, it does not. */
  endsAt!: number;
  /** When the next renewal is due: none while an EXTEND is under way, because it would undo that. */
  #renewAt!: number;
  #extensions = 0;
  /** The connection that the session belongs to. */
  #session: Connection | undefined;
  #lost: AbortController | undefined;
  #watch: Watch | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    /** The name of the lock, as the caller gave it. */
    readonly name: string,
    readonly request: Request,
  ) {
    const { lease, session, renew } = request.wanted;
    this.#session = session ? request.connection : undefined;
    this.#leaseFrom(request.sentAt, lease);
    if (session || renew) this.#startWatch();
    if (!session && now() - request.sentAt > lease / LATE) {
      // The whole lease counts from a late grant. Without a reply to this EXTEND, only the certain part does.
      this.#setEnd(now() + lease);
      this.extend(lease).catch(() => this.#setEnd(Math.min(this.endsAt, request.sentAt + lease)));
    }
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

  /** Notes one more acquisition by the holder of a re-entrant lock. */
  async enter(lease: number): Promise<void> {
    if (!this.isHeld) throw this.#loss();
    if (now() + lease > this.endsAt) await this.extend(lease);
    if (this.state !== "held") throw this.#loss();
    this.#count++;
  }

  /** Gives back one acquisition; the last one releases the lock. */
  async release(): Promise<void> {
    if (--this.#count > 0 && this.isHeld) return;
    if (this.#count > 0) throw this.#loss();
    const wasLost = this.state === "lost";
    if (!wasLost) this.#end("released");
    const wasHeld = await this.request.release().catch((error) => {
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
    if (this.request.wanted.session) throw new TypeError(`lock "${this.name}": a session belongs to its connection`);
    this.#end("released");
  }

  /** Sets the lease, from now on. */
  extend(lease: number): Promise<void> {
    return this.#asHolder(() => this.#extend(lease));
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

  async #extend(lease: number): Promise<void> {
    const askedAt = now();
    this.#extensions++;
    // The lease may be shorter even if the reply is lost.
    this.#setEnd(Math.min(this.endsAt, askedAt + lease));
    try {
      await this.request.extend(lease);
      this.#leaseFrom(askedAt, lease);
    } finally {
      this.#extensions--;
      this.#schedule();
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
    if (this.request.wanted.session) this.request.release().catch(() => {});
  }

  #end(state: "lost" | "released"): void {
    this.state = state;
    clearTimeout(this.#timer);
    this.#watch?.delete(this);
  }

  #startWatch(): void {
    if (this.#watch || this.state !== "held") return;
    const { server, key } = this.request;
    this.#watch = server.watches.get(key) ?? new Watch(server, key);
    this.#watch.add(this);
    this.#schedule();
  }

  #leaseFrom(start: number, lease: number): void {
    const { renew, session } = this.request.wanted;
    this.#lease = lease;
    this.#renewAt = renew || session ? start + lease / RENEWALS : Number.POSITIVE_INFINITY;
    this.#setEnd(start + lease);
  }

  #setEnd(endsAt: number): void {
    this.endsAt = this.#session ? Number.POSITIVE_INFINITY : endsAt;
    this.#schedule();
  }

  /** Sets the timer for what comes next: the renewal or the end. */
  #schedule(): void {
    clearTimeout(this.#timer);
    if (!this.#watch || this.state !== "held") return;
    const ms = Math.min(this.endsAt, this.#extensions > 0 ? Number.POSITIVE_INFINITY : this.#renewAt) - now();
    // After a stall of this process, timers are first: the reply to an extension is read before the immediate.
    this.#timer = setTimeout(() => setImmediate(() => this.#due()), timerMs(ms));
  }

  #due(): void {
    if (this.state !== "held") return;
    if (now() >= this.endsAt) this.#lose();
    else if (now() >= this.#renewAt && this.#extensions === 0) void this.#renew();
    this.#schedule();
  }

  /** Renews the lease, or gives the lock to a session of the present connection. Only the server's word ends the lock. */
  async #renew(): Promise<void> {
    const { connection, wanted } = this.request;
    try {
      await this.#extend(this.#lease);
      if (wanted.session && !this.#session) {
        // The request alone would acquire a lock that is free by now.
        if (!(await this.request.take())) throw new ServerError("NOTHELD the lock was lost with its session");
        this.#session = connection;
        this.#setEnd(Number.POSITIVE_INFINITY);
        this.seen();
      }
    } catch (error) {
      if (isNotHeld(error)) this.#lose();
      this.#renewAt = now() + (isPassing(error) ? RETRY_MS : Math.max(this.#lease / RENEWALS, RETRY_MS));
      this.#schedule();
    }
  }

  /** Notes what the server has replied to the question of who holds the lock, undefined if a connection was lost. */
  seen(isHolding?: boolean): void {
    const { connection, wanted } = this.request;
    if (isHolding === false) this.#lose();
    if (!this.#session || this.#session === connection) return;
    // The session has ended, or the slot of the key has moved: the grace period has begun.
    this.#session = undefined;
    this.#renewAt = now();
    this.#setEnd(now() + wanted.grace - RETRY_MS);
  }
}
