import type { Hold } from "./hold.js";
import { checkLease } from "./options.js";
import { hashTag } from "./slots.js";

/** A lock that is held. `await using` releases it at the end of the block. */
export class Lock implements AsyncDisposable {
  readonly #hold: Hold;
  #released: Promise<void> | undefined;

  /** @internal */
  constructor(hold: Hold) {
    this.#hold = hold;
  }

  /** The name of the lock. */
  get name(): string {
    return this.#hold.name;
  }

  /** The token that the server has as the holder: random, used once, with the label in front if there is one. */
  get token(): string {
    return this.#hold.request.token;
  }

  /**
   * Aborted with a {@link LockLostError} as its reason when the lock is lost. The lock is watched from the first time that
   * this is read; a watched lock keeps the process alive.
   */
  get signal(): AbortSignal {
    return this.#hold.signal;
  }

  /** Whether the lock was not released and is not known to be lost. */
  get isHeld(): boolean {
    return this.#released === undefined && this.#hold.isHeld;
  }

  /**
   * Sets the lease to `lease` milliseconds from now on.
   * @throws LockLostError if the lock is lost or released.
   */
  async extend(lease: number): Promise<void> {
    checkLease(this.name, lease);
    await this.#hold.extend(lease);
  }

  /**
   * Returns a fencing token, which is higher than those of all earlier holders. The resource refuses a write whose token
   * is lower than one that it has seen. The counter is a key in the cluster slot of the lock.
   * @throws ModuleNeededError without the module.
   */
  async fence(counter?: string): Promise<number> {
    const { key } = this.#hold.request;
    const inSlot = hashTag(key) === key ? `{${key}}:fence` : `${key}:fence`;
    return this.#hold.fence(counter ?? inSlot);
  }

  /**
   * Releases the lock. A second call returns the same promise.
   * @throws LockLostError if the lock was lost before.
   */
  release(): Promise<void> {
    this.#released ??= this.#hold.release();
    return this.#released;
  }

  /** Releases the lock. A loss that `signal` has reported is not thrown, so that the error of the block is. */
  async [Symbol.asyncDispose](): Promise<void> {
    const wasReported = this.#hold.hasReportedLoss;
    await this.release().catch((error) => {
      if (!wasReported) throw error;
    });
  }
}
