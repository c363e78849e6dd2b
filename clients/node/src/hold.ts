import { acquire, isPassing, take, withdraw } from "./acquire.js";
import type { Connection } from "./connection.js";
import { LockLostError, publicError, ServerError } from "./errors.js";
import { type Command, fieldsOf, type Request } from "./request.js";
import type { Server } from "./server.js";
import { Deferred, MAX_TIMER_MS, now } from "./time.js";

const RETRY_MS = 100;
/** The token does not hold the lock. */
const NOT_HELD = new Set(["NOTHELD", "NOTOWNER", "WRONGTYPE", "OTHERFORM"]);
const isNotHeld = (error: unknown): boolean => error instanceof ServerError && NOT_HELD.has(error.code);

/** A lock that this process holds: released, extended, renewed, and watched until it is lost. */
export class Hold {
  #state: "held" | "lost" | "released" = "held";
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
  #hasChanged = false;
  /** Ends the pause of the watch. */
  #wake = () => {};
  #endTimer: NodeJS.Timeout | undefined;

  constructor(
    /** The name of the lock, as the caller gave it. */
    readonly name: string,
    readonly server: Server,
    readonly request: Request,
    renew: boolean,
  ) {
    const { lease, session } = request.wanted;
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
    { wait, renew, signal }: { wait: number; renew: boolean; signal?: AbortSignal | undefined },
  ): Promise<Hold | null> {
    try {
      return (await acquire(server, request, wait, signal)) ? new Hold(name, server, request, renew) : null;
    } catch (error) {
      throw publicError(name, error);
    }
  }

  get isHeld(): boolean {
    return this.#state === "held" && (now() < this.#endsAt || this.#sessionOn !== undefined);
  }

  /** Aborted with a LockLostError when the lock is lost, which is watched from the first time that this is read. */
  get signal(): AbortSignal {
    this.#watch();
    return this.#lost.signal;
  }

  get isReleased(): boolean {
    return this.#state === "released";
  }

  /** Whether `signal` has reported a loss. */
  get hasReportedLoss(): boolean {
    return this.#lost.signal.aborted;
  }

  /** Notes one more acquisition by the holder of a re-entrant lock. */
  async enter(lease: number): Promise<void> {
    if (!this.isHeld) throw this.#loss();
    if (now() + lease > this.#endsAt) await this.extend(lease);
    if (this.#state !== "held") throw this.#loss();
    this.#count++;
  }

  /** Gives back one acquisition; the last one releases the lock. */
  async release(): Promise<void> {
    if (--this.#count > 0) {
      if (!this.isHeld) throw this.#loss();
      return;
    }
    const wasLost = this.#state === "lost";
    if (!wasLost) this.#end("released");
    const { server, request } = this;
    const sentOn = new Set<Connection>();
    try {
      const reply = await server.ask(request.key, request.release({ sentOn }));
      request.answeredOn(sentOn);
      if (reply === null || wasLost) throw this.#loss();
    } catch (error) {
      // After a lost connection, a repeated RELEASE finds nothing if the first one has worked.
      if (!isNotHeld(error) || wasLost) throw publicError(this.name, wasLost ? this.#loss() : error);
      request.answeredOn(sentOn);
      if (sentOn.size === 1) throw this.#loss();
    } finally {
      void withdraw(server, request);
    }
  }

  /** Sets the lease, from now on. */
  async extend(lease: number): Promise<void> {
    if (this.#state !== "held") throw this.#loss();
    const askedAt = now();
    this.#lease = lease;
    // It may be shorter even if the reply is lost.
    this.#setEnd(Math.min(this.#endsAt, askedAt + lease));
    await this.#ask(this.request.extend(lease));
    this.#noteExtended(askedAt);
    this.#wake();
  }

  /** Leaves the lock to the end of its lease. */
  stopRenewing(): void {
    this.#renewAt = Number.POSITIVE_INFINITY;
  }

  /** Returns the next fencing token of a counter. */
  async fence(counter: string): Promise<number> {
    const { key, token } = this.request;
    return Number(await this.#ask({ words: ["LOCK.FENCE", key, token, counter] }));
  }

  /** Sends a command of the holder. Throws a LockLostError if the lock is not held. */
  async #ask(command: Command): Promise<unknown> {
    if (this.#state !== "held") throw this.#loss();
    try {
      return await this.server.ask(this.request.key, command);
    } catch (error) {
      // For LOCK.FENCE this is about the counter.
      const isCounter = command.words[0] === "LOCK.FENCE" && (error as ServerError).code === "WRONGTYPE";
      if (!isNotHeld(error) || isCounter) throw publicError(this.name, error);
      this.#lose();
      throw this.#loss();
    }
  }

  #loss(): LockLostError {
    const text = this.#state === "released" ? "it has been released" : "it is no longer held";
    return new LockLostError(this.name, text);
  }

  #lose(): void {
    if (this.#state !== "held") return;
    this.#end("lost");
    this.#lost.abort(this.#loss());
    // The server may still renew it.
    if (this.request.wanted.session) void withdraw(this.server, this.request);
  }

  #end(state: "lost" | "released"): void {
    this.#state = state;
    clearTimeout(this.#endTimer);
    this.#wake();
  }

  #setEnd(endsAt: number): void {
    this.#endsAt = endsAt;
    if (!this.#isWatched) return;
    clearTimeout(this.#endTimer);
    this.#endTimer = setTimeout(() => this.#checkEnd(), Math.min(endsAt - now(), MAX_TIMER_MS));
  }

  #checkEnd(): void {
    if (now() < this.#endsAt) this.#setEnd(this.#endsAt);
    else if (this.#sessionOn) this.#change();
    else this.#lose();
  }

  #noteExtended(askedAt: number): void {
    if (this.#state !== "held") return;
    this.#setEnd(askedAt + this.#lease);
    if (this.#renewAt !== Number.POSITIVE_INFINITY) this.#renewAt = askedAt + this.#lease / 3;
  }

  #change(): void {
    this.#hasChanged = true;
    this.#wake();
  }

  /** Renews and watches the lock until it is lost or released. */
  async #watch(): Promise<void> {
    if (this.#isWatched || this.#state !== "held") return;
    this.#isWatched = true;
    this.#setEnd(this.#endsAt);
    const unwatch = this.server.watch(this.request.key, () => this.#change());
    while (this.#state === "held") {
      this.#hasChanged = false;
      const nextAt = await this.#look().catch((error) => this.#failed(error));
      if (this.#state !== "held" || this.#hasChanged) continue;
      const woken = new Deferred<void>();
      this.#wake = woken.resolve;
      await woken.within(nextAt - now(), undefined);
    }
    unwatch();
  }

  /** Renews the lease if it is time, and asks whether the lock is held. Returns when to look again. */
  async #look(): Promise<number> {
    const { server, request } = this;
    if (request.wanted.session) await this.#keepSession();
    const askedAt = now();
    if (askedAt >= this.#renewAt) {
      await server.ask(request.key, request.extend(this.#lease));
      this.#noteExtended(askedAt);
    }
    await server.connection(request.key).track();
    const lookedAt = now();
    const left = await this.#leaseLeft();
    if (this.#state !== "held") return lookedAt;
    if (left === null) this.#lose();
    else this.#setEnd(lookedAt + left);
    // The server renews the lease of a session each time that a third of it has passed.
    if (request.wanted.session && left !== null && left < this.#lease / 2) this.#sessionOn = undefined;
    return request.wanted.session ? lookedAt + this.#lease / 3 : this.#renewAt;
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
    if (this.#state !== "held") return void withdraw(server, request);
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
      server.exchange(request.key, ["ZSCORE", request.key, request.token]),
      server.exchange(request.key, ["TIME"]),
    ]);
    if (end === null) return null;
    const [seconds, micros] = time as [string, string];
    const left = Number(String(end).replace("inf", "Infinity")) - Number(seconds) * 1000 - Number(micros) / 1000;
    return left < 0 ? null : left;
  }
}
