/**
 * The interface of redlock 5, for one server or cluster. A wait is one request in a fair queue, which lasts as long as
 * redlock's attempts do; several resources are acquired in the order of their names, all or none.
 *
 * @module
 */
import { EventEmitter } from "node:events";
import { createLocks, type Lock as HeldLock, type LockClient, type Locks, LockTimeoutError } from "../index.js";
import { now } from "../time.js";

/** The settings of redlock. Jitter and threshold have no effect. */
const DEFAULTS = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
};

export type Settings = Readonly<typeof DEFAULTS>;

export type RedlockAbortSignal = AbortSignal & { error?: Error };

type Routine<T> = (signal: RedlockAbortSignal) => Promise<T>;

/** A resource is held by another client. */
export class ResourceLockedError extends Error {
  override readonly name = "ResourceLockedError";
}

/** An operation has failed; `cause` says why. */
export class ExecutionError extends Error {
  override readonly name = "ExecutionError";
}

export class Lock {
  /** @internal */
  constructor(
    readonly redlock: Redlock,
    readonly resources: string[],
    /** The token of the first resource: each has its own. */
    readonly value: string,
    public expiration: number,
    /** @internal */
    readonly held: readonly HeldLock[],
  ) {}

  release(): Promise<void> {
    return this.redlock.release(this);
  }

  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}

export default class Redlock extends EventEmitter {
  readonly settings: Settings;
  readonly #locks: Locks;

  constructor([client, ...others]: Iterable<LockClient>, settings: Partial<Settings> = {}) {
    super();
    if (!client || others.length > 0) throw new Error("Redlock needs one client: there is no quorum.");
    // An event for an error ends the process if no listener hears it.
    this.on("error", () => {});
    this.settings = { ...DEFAULTS, ...settings };
    this.#locks = createLocks(client);
  }

  /** Does nothing: the package has no client of its own that a program has to close. */
  async quit(): Promise<void> {}

  acquire(resources: string[], duration: number, settings?: Partial<Settings>): Promise<Lock> {
    return this.#acquire(resources, duration, settings, false);
  }

  async release(lock: Lock): Promise<void> {
    lock.expiration = 0;
    await this.#all(lock.held, (one) => one.release());
  }

  async extend(lock: Lock, duration: number): Promise<Lock> {
    checkDuration(duration);
    await this.#all(lock.held, (one) => one.extend(duration));
    lock.expiration = 0;
    return this.#lock(lock.resources, duration, lock.held);
  }

  using<T>(resources: string[], duration: number, settings: Partial<Settings>, routine: Routine<T>): Promise<T>;
  using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>;
  async using<T>(resources: string[], duration: number, ...rest: unknown[]): Promise<T> {
    const routine = rest.pop() as Routine<T>;
    const lock = await this.#acquire(resources, duration, rest[0] as Partial<Settings>, true);
    const signal: RedlockAbortSignal = AbortSignal.any(lock.held.map((one) => one.signal));
    signal.addEventListener("abort", () => {
      signal.error = signal.reason;
    });
    let result: T;
    try {
      result = await routine(signal);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    }
    await lock.release();
    return result;
  }

  async #acquire(names: string[], lease: number, settings: Partial<Settings> | undefined, renew: boolean) {
    checkDuration(lease);
    const { retryCount, retryDelay } = { ...this.settings, ...settings };
    const deadline = retryCount < 0 ? Number.POSITIVE_INFINITY : now() + retryCount * retryDelay;
    const held: HeldLock[] = [];
    try {
      for (const name of [...new Set(names)].sort()) {
        held.push(await this.#locks.acquire(name, { lease, wait: Math.max(deadline - now(), 0), renew }));
      }
      // The leases of several locks end together.
      if (held.length > 1) await Promise.all(held.map((one) => one.extend(lease)));
    } catch (error) {
      await Promise.allSettled(held.map((one) => one.release()));
      this.#fail(error);
    }
    return this.#lock(names, lease, held);
  }

  #lock(names: string[], duration: number, held: readonly HeldLock[]): Lock {
    const endsAt = Math.min(...held.map((one) => one.hold.endsAt));
    const drift = Math.round(this.settings.driftFactor * duration) + 2;
    return new Lock(this, names, held[0]?.token ?? "", Math.floor(Date.now() - now() + endsAt) - drift, held);
  }

  async #all(held: readonly HeldLock[], run: (lock: HeldLock) => Promise<void>): Promise<void> {
    const results = await Promise.allSettled(held.map(run));
    const failed = results.find((result) => result.status === "rejected");
    if (failed) this.#fail(failed.reason);
  }

  #fail(error: unknown): never {
    const cause =
      error instanceof LockTimeoutError ? new ResourceLockedError("The resource is locked.", { cause: error }) : error;
    this.emit("error", cause);
    throw new ExecutionError("The operation was unable to achieve a quorum during its retry window.", { cause });
  }
}

function checkDuration(duration: number): void {
  if (!Number.isInteger(duration)) throw new Error("Duration must be an integer value in milliseconds.");
}
