/**
 * The interface of redis-semaphore: Mutex and Semaphore. A wait is one request in a fair queue instead of attempts, and a
 * lost lock calls `onLockLost`; without that function it is no unhandled rejection, `isAcquired` is false.
 *
 * @module
 */
import { createLocks, type Lock, type LockClient, LockLostError, type Locks, LockTimeoutError } from "../index.js";

export interface LockOptions {
  readonly lockTimeout?: number;
  readonly acquireTimeout?: number;
  /** 1 is one attempt, any other number a wait. */
  readonly acquireAttemptsLimit?: number;
  /** Has no effect: nothing is polled where the server has the module. */
  readonly retryInterval?: number;
  /** 0: the lock is not renewed. Else it is renewed each time that a third of `lockTimeout` has passed. */
  readonly refreshInterval?: number;
  readonly onLockLost?: (this: Mutex, error: LostLockError) => void;
}

const OPTIONS = new Set(
  "lockTimeout acquireTimeout acquireAttemptsLimit retryInterval refreshInterval onLockLost".split(" "),
);

export class LostLockError extends Error {
  override readonly name = "LostLockError";
}

export class TimeoutError extends Error {
  override readonly name = "TimeoutError";
}

/** A lock with one holder. */
export class Mutex {
  readonly #locks: Locks;
  readonly #kind: string;
  readonly #name: string;
  readonly #options: LockOptions;
  /** What this object holds. It is released in the order of acquisition. */
  readonly #held: Lock[] = [];

  constructor(
    client: LockClient,
    key: string,
    options: LockOptions = {},
    readonly permits?: number,
  ) {
    check(client, '"client" is required');
    check(key, '"key" is required');
    check(typeof key === "string", '"key" must be a string');
    for (const option of Object.keys(options)) check(OPTIONS.has(option), `the option "${option}" is not supported`);
    this.#locks = createLocks(client);
    this.#kind = permits === undefined ? "mutex" : "semaphore";
    this.#name = `${this.#kind}:${key}`;
    this.#options = options;
  }

  /** The token of the latest acquisition, which is a new one each time. */
  get identifier(): string | undefined {
    return this.#held.at(-1)?.token;
  }

  get isAcquired(): boolean {
    return this.#held.length > 0;
  }

  async acquire(signal?: AbortSignal): Promise<void> {
    if (!(await this.tryAcquire(signal))) throw new TimeoutError(`Acquire ${this.#kind} ${this.#name} timeout`);
  }

  /** Returns whether the lock was acquired within `acquireTimeout`. */
  async tryAcquire(signal?: AbortSignal): Promise<boolean> {
    const { lockTimeout: lease = 10_000, acquireTimeout = 10_000, acquireAttemptsLimit } = this.#options;
    const wait = acquireAttemptsLimit === 1 ? 0 : acquireTimeout;
    const options = { lease, wait, permits: this.permits, renew: this.#options.refreshInterval !== 0, signal };
    const lock = await this.#locks.acquire(this.#name, options).catch(unless(LockTimeoutError));
    if (!lock) return false;
    this.#held.push(lock);
    lock.signal.addEventListener("abort", () => this.#lose(lock));
    return true;
  }

  /** Releases the lock. One that is lost by now needs no release. */
  async release(): Promise<void> {
    await this.#held.shift()?.release().catch(unless(LockLostError));
  }

  #lose(lock: Lock): void {
    const place = this.#held.indexOf(lock);
    if (place < 0) return;
    this.#held.splice(place, 1);
    this.#options.onLockLost?.call(this, new LostLockError(`Lost ${this.#kind} for key ${this.#name}`));
  }
}

/** A lock with at most `limit` holders. Needs the module. */
export class Semaphore extends Mutex {
  constructor(client: LockClient, key: string, limit: number, options?: LockOptions) {
    check(limit, '"limit" is required');
    check(typeof limit === "number", '"limit" must be a number');
    super(client, key, options, limit);
  }
}

function check(holds: unknown, text: string): void {
  if (!holds) throw new Error(text);
}

/** Returns what ignores the errors of a class, and throws any other. */
function unless(type: typeof LockTimeoutError | typeof LockLostError): (error: unknown) => null {
  return (error) => {
    if (error instanceof type) return null;
    throw error;
  };
}
