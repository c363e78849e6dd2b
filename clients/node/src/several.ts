import { LockLostError, LockTimeoutError, timeoutError } from "./errors.js";
import type { Lock } from "./lock.js";
import type { Locks } from "./locks.js";
import { checkOptions, type LockOptions } from "./options.js";
import { now } from "./time.js";

/** Several locks that are held as one. `await using` releases them at the end of the block. */
export class SeveralLocks implements AsyncDisposable {
  readonly #signal: AbortSignal;
  #isSignalRead = false;

  /** @internal */
  constructor(
    /** The locks, in the order in which they were acquired. */
    readonly locks: readonly Lock[],
  ) {
    this.#signal = AbortSignal.any(locks.map((lock) => lock.hold.signal));
  }

  /** Aborted with a {@link LockLostError} as its reason when one of the locks is lost. They are watched from the beginning on. */
  get signal(): AbortSignal {
    this.#isSignalRead = true;
    return this.#signal;
  }

  /**
   * Releases all locks in turn.
   * @throws the first error, after it has tried all; LockLostError if a lock was lost before.
   */
  async release(): Promise<void> {
    const errors: unknown[] = [];
    for (const lock of [...this.locks].reverse()) await lock.release().catch((error) => errors.push(error));
    if (errors.length > 0) throw errors[0];
  }

  /** Releases all locks. A loss that `signal` has reported is not thrown, so that the error of the block is. */
  async [Symbol.asyncDispose](): Promise<void> {
    const wasReported = this.#isSignalRead && this.#signal.aborted;
    await this.release().catch((error) => {
      if (!wasReported) throw error;
    });
  }
}

/** Acquires locks in the order of the bytes of their names, which is that of all callers, so that no two wait for each other. */
export async function acquireSeveral(
  locks: Locks,
  names: readonly string[],
  options: LockOptions,
): Promise<SeveralLocks> {
  if (!Array.isArray(names)) throw new TypeError("several locks need an array of names");
  for (const name of names) checkOptions(name, options);
  const sorted = [...new Set(names)].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
  if (sorted.length === 0 || sorted.length < names.length)
    throw new RangeError("several locks need names, and each one of its own");
  const deadline = now() + (options.wait ?? Number.POSITIVE_INFINITY);
  const held: Lock[] = [];
  try {
    for (const name of sorted)
      held.push(await locks.acquire(name, { ...options, wait: Math.max(deadline - now(), 0) }));
    // The lease of one may have ended while the next was awaited.
    const lost = held.find((lock) => !lock.isHeld);
    if (lost) throw new LockLostError(lost.name, "it is no longer held");
    return new SeveralLocks(held);
  } catch (error) {
    for (const lock of held.reverse()) await lock.release().catch(() => {});
    throw error instanceof LockTimeoutError ? timeoutError(error.lock, options.wait, false) : error;
  }
}
