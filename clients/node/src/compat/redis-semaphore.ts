/**
 * The interface of redis-semaphore: Mutex and Semaphore. A wait is one request in a fair queue instead of attempts, and a
 * lost lock calls `onLockLost`; without that function it is no unhandled rejection, `isAcquired` is false.
 *
 * @module
 */
import { randomUUID } from "node:crypto";
import { driverOf, type LockClient } from "../drivers/index.js";
import { LockLostError } from "../errors.js";
import { Hold } from "../hold.js";
import { Request } from "../request.js";
import { Server } from "../server.js";

export interface TimeoutOptions {
  readonly lockTimeout?: number;
  readonly acquireTimeout?: number;
  /** 1 is one attempt, any other number a wait. */
  readonly acquireAttemptsLimit?: number;
  /** Has no effect: nothing is polled where the server has the module. */
  readonly retryInterval?: number;
  /** 0: the lock is not renewed. Else it is renewed each time that a third of `lockTimeout` has passed. */
  readonly refreshInterval?: number;
}

export interface LockOptions extends TimeoutOptions {
  /** @deprecated Use `identifier` and `acquiredExternally`. */
  readonly externallyAcquiredIdentifier?: string;
  /** @deprecated Use `identifier`. */
  readonly identifierSuffix?: string;
  readonly identifier?: string;
  /** The lock is already held with `identifier`. */
  readonly acquiredExternally?: true;
  readonly onLockLost?: LockLostCallback;
}

export type LockLostCallback = (this: Mutex, error: LostLockError) => void;

export const defaultTimeoutOptions = {
  lockTimeout: 10_000,
  acquireTimeout: 10_000,
  acquireAttemptsLimit: Number.POSITIVE_INFINITY,
  retryInterval: 10,
};

export class LostLockError extends Error {
  override readonly name = "LostLockError";
}

export class TimeoutError extends Error {
  override readonly name = "TimeoutError";
}

/** A lock with one holder. */
export class Mutex {
  readonly identifier: string;
  readonly #kind: "mutex" | "semaphore";
  readonly #key: string;
  readonly #permits: number | undefined;
  readonly #server: Server;
  readonly #options: LockOptions & typeof defaultTimeoutOptions;
  #isExternal: boolean;
  #hold: Hold | undefined;

  constructor(client: LockClient, key: string, options?: LockOptions);
  /** @internal */
  constructor(client: LockClient, key: string, options?: LockOptions, permits?: number);
  constructor(client: LockClient, key: string, options: LockOptions = {}, permits?: number) {
    if (!client) throw new Error('"client" is required');
    if (!key) throw new Error('"key" is required');
    if (typeof key !== "string") throw new Error('"key" must be a string');
    const { identifier, acquiredExternally, externallyAcquiredIdentifier, identifierSuffix } = options;
    if (identifier !== undefined && (!identifier || typeof identifier !== "string")) {
      throw new Error("identifier must be not empty random string");
    }
    if (acquiredExternally && !identifier) {
      throw new Error("acquiredExternally=true meanless without custom identifier");
    }
    if (externallyAcquiredIdentifier && (identifier || acquiredExternally)) {
      throw new Error("Invalid usage. Use custom identifier and acquiredExternally: true");
    }
    const suffix = identifierSuffix ? `-${identifierSuffix}` : "";
    this.identifier = identifier ?? externallyAcquiredIdentifier ?? `${randomUUID()}${suffix}`;
    this.#isExternal = Boolean(acquiredExternally ?? externallyAcquiredIdentifier);
    this.#options = { ...defaultTimeoutOptions, ...options };
    this.#kind = permits === undefined ? "mutex" : "semaphore";
    this.#permits = permits;
    const driver = driverOf(client);
    this.#server = Server.of(driver);
    this.#key = `${driver.prefix ?? ""}${this.#kind}:${key}`;
  }

  get isAcquired(): boolean {
    return this.#hold !== undefined;
  }

  async acquire(abortSignal?: AbortSignal): Promise<void> {
    if (await this.tryAcquire(abortSignal)) return;
    throw new TimeoutError(`Acquire ${this.#kind} ${this.#key} timeout`);
  }

  /** Returns whether the lock was acquired within `acquireTimeout`. */
  async tryAcquire(abortSignal?: AbortSignal): Promise<boolean> {
    const hold = this.#isExternal ? await this.#adopt() : await this.#acquire(abortSignal);
    if (!hold) return false;
    this.#isExternal = false;
    this.#hold = hold;
    hold.signal.addEventListener("abort", () => this.#lose(hold));
    return true;
  }

  /** Releases the lock. One that is lost by now needs no release. */
  async release(): Promise<void> {
    const hold = this.#hold ?? (this.#isExternal ? this.#newHold(this.#request()) : undefined);
    this.#hold = undefined;
    this.#isExternal = false;
    await hold?.release().catch((error) => {
      if (!(error instanceof LockLostError)) throw error;
    });
  }

  /** Leaves the lock to the end of its lease. */
  stopRefresh(): void {
    this.#hold?.stopRenewing();
  }

  #acquire(signal: AbortSignal | undefined): Promise<Hold | null> {
    const { acquireTimeout, acquireAttemptsLimit } = this.#options;
    const wait = acquireAttemptsLimit === 1 ? 0 : acquireTimeout;
    return Hold.acquire(this.#key, this.#server, this.#request(), { wait, renew: this.#isRenewed, signal });
  }

  /** Takes over a lock that is held with the identifier. Returns null if it is not. */
  async #adopt(): Promise<Hold | null> {
    const hold = this.#newHold(this.#request());
    try {
      await hold.extend(this.#options.lockTimeout);
      return hold;
    } catch (error) {
      if (error instanceof LockLostError) return null;
      throw error;
    }
  }

  #newHold(request: Request): Hold {
    request.noteSent();
    return new Hold(this.#key, this.#server, request, this.#isRenewed);
  }

  get #isRenewed(): boolean {
    return this.#options.refreshInterval !== 0;
  }

  #request(): Request {
    const kind = this.#permits === undefined ? "mutex" : "shared";
    const { lockTimeout } = this.#options;
    return new Request(
      { key: this.#key, lease: lockTimeout, kind, permits: this.#permits, session: false },
      this.identifier,
    );
  }

  #lose(hold: Hold): void {
    if (this.#hold !== hold) return;
    this.#hold = undefined;
    this.#options.onLockLost?.call(this, new LostLockError(`Lost ${this.#kind} for key ${this.#key}`));
  }
}

/** A lock with at most `limit` holders. Needs the module. */
export class Semaphore extends Mutex {
  constructor(client: LockClient, key: string, limit: number, options?: LockOptions) {
    if (client && key && !limit) throw new Error('"limit" is required');
    if (client && key && typeof limit !== "number") throw new Error('"limit" must be a number');
    super(client, key, options, limit);
  }
}
