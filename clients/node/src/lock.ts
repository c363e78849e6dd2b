import type { Hold } from "./hold.js";
import { checkNumber, MAX_LEASE_MS } from "./options.js";

/** What ends a lock that a program has lost sight of. Without it, a renewed one is held until the process ends. */
const collected = new FinalizationRegistry<Hold>((hold) => hold.abandon());

/** A lock that is held. `await using` releases it at the end of the block. */
export class Lock implements AsyncDisposable {
  /** The name of the lock. */
  readonly name: string;
  /** The token that the server has as the holder: random, used once, with the label in front if there is one. */
  readonly token: string;
  #released: Promise<void> | undefined;
  #isSignalRead = false;

  /** @internal */
  constructor(/** @internal */ readonly hold: Hold) {
    this.name = hold.name;
    this.token = hold.request.token;
    const { renew, session } = hold.request.wanted;
    if (renew || session) collected.register(this, hold, this);
  }

  /**
   * Aborted with a {@link LockLostError} as its reason when the lock is lost. The lock is watched from the first time that
   * this is read; a watched lock keeps the process alive.
   */
  get signal(): AbortSignal {
    this.#isSignalRead = true;
    return this.hold.signal;
  }

  /** Whether the lock was not released and is not known to be lost. */
  get isHeld(): boolean {
    return this.#released === undefined && this.hold.isHeld;
  }

  /**
   * Sets the lease to `lease` milliseconds from now on.
   * @throws LockLostError if the lock is lost or released.
   */
  async extend(lease: number): Promise<void> {
    checkNumber(this.name, "lease", lease, 1, MAX_LEASE_MS);
    await this.hold.extend(lease);
  }

  /**
   * Returns a fencing token, which is higher than those of all earlier holders. The resource refuses a write whose token
   * is lower than one that it has seen. The counter is a key in the cluster slot of the lock.
   * @throws ModuleNeededError without the module.
   */
  fence(): Promise<number> {
    return this.hold.fence();
  }

  /**
   * Releases the lock. A second call returns the same promise.
   * @throws LockLostError if the lock was lost before.
   */
  release(): Promise<void> {
    collected.unregister(this);
    this.#released ??= this.hold.release();
    return this.#released;
  }

  /**
   * Gives the lock away: it stays held, and is not renewed until `locks.attach` takes it over by the token, which is
   * returned. This object is then as one that is released.
   * @throws LockLostError if the lock is lost or released.
   */
  detach(): string {
    this.hold.detach();
    collected.unregister(this);
    this.#released = Promise.resolve();
    return this.token;
  }

  /** Releases the lock. A loss that `signal` has reported is not thrown, so that the error of the block is. */
  async [Symbol.asyncDispose](): Promise<void> {
    const wasReported = this.#isSignalRead && this.hold.state === "lost";
    await this.release().catch((error) => {
      if (!wasReported) throw error;
    });
  }
}
