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
  /** The token of all acquisitions of this object, which do not exclude each other then. */
  readonly identifier?: string;
  /** The lock is already held with `identifier`. */
  readonly acquiredExternally?: true;
  readonly onLockLost?: (this: Mutex, error: LostLockError) => void;
}

export class LostLockError extends Error {
  override readonly name = "LostLockError";
}

export class TimeoutError extends Error {
  override readonly name = "TimeoutError";
}

/** A lock with one holder. */
export class Mutex {
  /** The token of the latest acquisition, a new one for each unless the program gives it. */
  identifier: string;
  readonly #key: string;
  readonly #server: Server;
  readonly #options: LockOptions;
  /** What this object holds. It is released in the order of acquisition. */
  readonly #holds: Hold[] = [];
  #isExternal: boolean;
  #isUsed = false;

  constructor(
    client: LockClient,
    key: string,
    options: LockOptions = {},
    readonly permits?: number,
  ) {
    const { identifier, acquiredExternally, externallyAcquiredIdentifier } = options;
    check(client, '"client" is required');
    check(key, '"key" is required');
    check(typeof key === "string", '"key" must be a string');
    const isIdentifier = typeof identifier === "string" && identifier !== "";
    check(identifier === undefined || isIdentifier, "identifier must be not empty random string");
    check(!acquiredExternally || identifier, "acquiredExternally=true meanless without custom identifier");
    const isTwice = externallyAcquiredIdentifier && (identifier || acquiredExternally);
    check(!isTwice, "Invalid usage. Use custom identifier and acquiredExternally: true");
    const driver = driverOf(client);
    this.#server = Server.of(driver);
    this.#key = `${driver.prefix ?? ""}${this.#kind}:${key}`;
    this.#options = options;
    this.#isExternal = Boolean(acquiredExternally ?? externallyAcquiredIdentifier);
    this.identifier = this.#newIdentifier();
  }

  get isAcquired(): boolean {
    return this.#holds.length > 0;
  }

  async acquire(signal?: AbortSignal): Promise<void> {
    if (!(await this.tryAcquire(signal))) throw new TimeoutError(`Acquire ${this.#kind} ${this.#key} timeout`);
  }

  /** Returns whether the lock was acquired within `acquireTimeout`. */
  async tryAcquire(signal?: AbortSignal): Promise<boolean> {
    const hold = this.#isExternal ? await this.#adopt() : await this.#acquire(signal);
    if (!hold) return false;
    this.#isExternal = false;
    this.#holds.push(hold);
    hold.signal.addEventListener("abort", () => this.#lose(hold));
    return true;
  }

  /** Releases the lock. One that is lost by now needs no release. */
  async release(): Promise<void> {
    const hold = this.#holds.shift() ?? (this.#isExternal ? this.#externalHold() : undefined);
    this.#isExternal = false;
    await hold?.release().catch(ignoreLoss);
  }

  /** Leaves the lock to the end of its lease. */
  stopRefresh(): void {
    for (const hold of this.#holds) hold.stopRenewing();
  }

  #acquire(signal: AbortSignal | undefined): Promise<Hold | null> {
    if (this.#isUsed) this.identifier = this.#newIdentifier();
    this.#isUsed = true;
    const { acquireTimeout = 10_000, acquireAttemptsLimit } = this.#options;
    const wait = acquireAttemptsLimit === 1 ? 0 : acquireTimeout;
    return Hold.acquire(this.#key, this.#server, this.#request(), wait, signal);
  }

  /** Takes over a lock that is held with the identifier. Returns null if it is not. */
  async #adopt(): Promise<Hold | null> {
    const hold = this.#externalHold();
    const isLost = await hold.extend(hold.request.wanted.lease).catch(ignoreLoss);
    return isLost ? null : hold;
  }

  #externalHold(): Hold {
    return new Hold(this.#key, this.#server, this.#request());
  }

  #request(): Request {
    const { lockTimeout: lease = 10_000, refreshInterval } = this.#options;
    const kind = this.permits === undefined ? "mutex" : "shared";
    return new Request(
      this.#key,
      { lease, kind, permits: this.permits, renew: refreshInterval !== 0 },
      this.identifier,
    );
  }

  #newIdentifier(): string {
    const { identifier, externallyAcquiredIdentifier, identifierSuffix } = this.#options;
    const suffix = identifierSuffix ? `-${identifierSuffix}` : "";
    return identifier ?? externallyAcquiredIdentifier ?? `${randomUUID()}${suffix}`;
  }

  get #kind(): string {
    return this.permits === undefined ? "mutex" : "semaphore";
  }

  #lose(hold: Hold): void {
    const place = this.#holds.indexOf(hold);
    if (place < 0) return;
    this.#holds.splice(place, 1);
    this.#options.onLockLost?.call(this, new LostLockError(`Lost ${this.#kind} for key ${this.#key}`));
  }
}

/** A lock with at most `limit` holders. Needs the module. */
export class Semaphore extends Mutex {
  constructor(client: LockClient, key: string, limit: number, options?: LockOptions) {
    check(limit || !client || !key, '"limit" is required');
    check(typeof limit === "number" || !client || !key, '"limit" must be a number');
    super(client, key, options, limit);
  }
}

function check(holds: unknown, text: string): void {
  if (!holds) throw new Error(text);
}

/** Returns true for the error of a lost lock, and throws any other. */
function ignoreLoss(error: unknown): true {
  if (error instanceof LockLostError) return true;
  throw error;
}
