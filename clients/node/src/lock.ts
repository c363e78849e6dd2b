import type { Hold } from "./hold.js";
import { checkNumber, MAX_LEASE_MS } from "./options.js";

/** What ends a lock that a program has lost sight of. Without it, a renewed one is held until the process ends. */
const collected = new FinalizationRegistry<Hold>((hold) => hold.abandon());

/** What is held until it is released. `await using` releases it at the end of the block. */
export class Held implements AsyncDisposable {
  #isSignalRead = false;
  /** @internal */
  protected released: Promise<void> | undefined;

  /** @internal */
  constructor(private readonly what: { readonly signal: AbortSignal; release(): Promise<void> }) {}

  /**
   * Aborted with a {@link LockLostError} as its reason when a lock is lost. The lock is watched from the first time that
   * this is read, several ones from the beginning on; a watched lock keeps the process alive.
   */
  get signal(): AbortSignal {
    this.#isSignalRead = true;
    return this.what.signal;
  }

  /**
   * Releases the lock, or several ones in turn. A second call returns the same promise.
   * @throws LockLostError if a lock was lost before; of several errors, the first one after all were tried.
   */
  release(): Promise<void> {
    collected.unregister(this);
    this.released ??= this.what.release();
    return this.released;
  }

  /** Releases the lock. A loss that `signal` has reported is not thrown, so that the error of the block is. */
  async [Symbol.asyncDispose](): Promise<void> {
    const wasReported = this.#isSignalRead && this.what.signal.aborted;
    await this.release().catch((error) => {
      if (!wasReported) throw error;
    });
  }
}

/** A lock that is held. */
export class Lock extends Held {
  /** The name of the lock. */
  readonly name: string;
  /** The token that the server has as the holder: random, used once, with the label in front if there is one. */
  readonly token: string;

  /** @internal */
  constructor(/** @internal */ readonly hold: Hold) {
    super(hold);
    this.name = hold.name;
    this.token = hold.token;
    if (hold.count++ === 0) hold.begin();
    if (hold.isRenewed) collected.register(this, hold, this);
  }

  /** Whether the lock was not released and is not known to be lost. */
  get isHeld(): boolean {
    return this.released === undefined && this.hold.isHeld;
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
    return this.hold.asHolder(() => this.hold.fence());
  }

  /**
   * Gives the lock away: it stays held, and is not renewed until `locks.attach` takes it over by the token, which is
   * returned. This object is then as one that is released.
   * @throws LockLostError if the lock is lost or released.
   */
  detach(): string {
    this.hold.detach();
    collected.unregister(this);
    this.released = Promise.resolve();
    return this.token;
  }
}

/** Several locks that are held as one. */
export class SeveralLocks extends Held {
  /** @internal */
  constructor(
    /** The locks, in the order in which they were acquired. */
    readonly locks: readonly Lock[],
  ) {
    const signal = AbortSignal.any(locks.map((lock) => lock.hold.signal));
    const release = async () => {
      const errors: unknown[] = [];
      for (const lock of [...locks].reverse()) await lock.release().catch((error) => errors.push(error));
      if (errors.length > 0) throw errors[0];
    };
    super({ signal, release });
  }
}
