import { AsyncLocalStorage } from "node:async_hooks";
import { acquire } from "./acquire.js";
import { driverOf, type LockClient } from "./drivers/index.js";
import { isNotHeld, LockLostError, LockTimeoutError, publicError } from "./errors.js";
import { Hold } from "./hold.js";
import { Lock } from "./lock.js";
import { checkOptions, DEFAULT_LEASE_MS, type LockOptions } from "./options.js";
import { Request } from "./request.js";
import { Server } from "./server.js";

/** What the running callbacks of `using` hold. */
const context = new AsyncLocalStorage<readonly Hold[]>();

/** Locks on one server or in one cluster. */
export class Locks {
  readonly #server: Server;
  readonly #prefix: string;

  /** @internal */
  constructor(client: LockClient) {
    const driver = driverOf(client);
    this.#server = Server.of(driver);
    this.#prefix = driver.prefix ?? "";
  }

  /**
   * Acquires a lock.
   * @throws TypeError or RangeError for arguments that no server would take.
   * @throws LockQueueFullError if `maxWaiters` wait already.
   * @throws LockTimeoutError if it was not free within `wait`; the reason of `signal` if that was aborted before.
   */
  async acquire(name: string, options: LockOptions = {}): Promise<Lock> {
    return new Lock(await this.#hold(name, options));
  }

  /** Returns the lock if it is free, null if it is not. It never waits. */
  async tryAcquire(name: string, options: Omit<LockOptions, "wait"> = {}): Promise<Lock | null> {
    const hold = await this.#tryHold(name, options, 0);
    return hold && new Lock(hold);
  }

  /**
   * Runs `work` while the lock is held, and renews the lease. When the lock is lost, `lock.signal` is aborted, and the
   * promise rejects with a LockLostError, unless `work` has thrown an error of its own.
   */
  async using<T>(name: string, options: LockOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    const hold = await this.#hold(name, { ...options, renew: options?.renew ?? !options?.session });
    const lock = new Lock(hold);
    let result: T;
    try {
      result = await context.run([hold, ...(context.getStore() ?? [])], work, lock);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    }
    await lock.release();
    return result;
  }

  async #hold(name: string, options: LockOptions): Promise<Hold> {
    const hold = await this.#tryHold(name, options, options.wait ?? Number.POSITIVE_INFINITY);
    if (!hold) throw new LockTimeoutError(name, `it was not free within ${options.wait} ms`);
    return hold;
  }

  /**
   * Takes over a lock that `lock.detach()` has given away, by its token, and sets its lease.
   * @throws LockLostError if the token does not hold the lock.
   */
  async attach(name: string, token: string, options: Omit<LockOptions, "wait" | "signal"> = {}): Promise<Lock> {
    checkOptions(name, options);
    if (typeof token !== "string" || token === "") throw new TypeError(`lock "${name}": the token must be a text`);
    const request = this.#request(name, options, token);
    request.isKnown = true;
    try {
      await request.extend(request.wanted.lease);
      if (request.wanted.session) await request.take();
    } catch (error) {
      throw isNotHeld(error) ? new LockLostError(name, "the token does not hold it") : publicError(name, error);
    }
    return new Lock(new Hold(name, request));
  }

  #request(name: string, options: LockOptions, token?: string): Request {
    const { lease, permits, maxWaiters, session = false, shared, reentrant, label } = options;
    const kind = reentrant ? "reentrant" : shared || permits !== undefined ? "shared" : "mutex";
    const renew = options.renew ?? (lease === undefined && !session);
    const wanted = { lease: lease ?? DEFAULT_LEASE_MS, kind, permits, maxWaiters, session, renew } as const;
    return new Request(this.#server, this.#prefix + name, wanted, label, token);
  }

  async #tryHold(name: string, options: LockOptions, wait: number): Promise<Hold | null> {
    checkOptions(name, options);
    const { id } = this.#server.driver;
    const isOuter = ({ request, state }: Hold) =>
      request.server.driver.id === id && request.key === this.#prefix + name && state !== "released";
    const outer = options.reentrant && context.getStore()?.find(isOuter);
    if (outer) {
      await outer.enter(options.lease ?? DEFAULT_LEASE_MS);
      return outer;
    }
    const request = this.#request(name, options);
    const isHeld = await acquire(request, wait, options.signal).catch((error) => {
      throw publicError(name, error);
    });
    return isHeld ? new Hold(name, request) : null;
  }
}
