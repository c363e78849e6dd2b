import { AsyncLocalStorage } from "node:async_hooks";
import type { Driver } from "./driver.js";
import { driverOf, type LockClient } from "./drivers/index.js";
import { isNotHeld, LockLostError, publicError, timeoutError } from "./errors.js";
import { Hold } from "./hold.js";
import { Lock } from "./lock.js";
import { observe } from "./observe.js";
import { checkOptions, type LockOptions } from "./options.js";
import { MAX_TOGETHER } from "./queue.js";
import { Request } from "./request.js";
import { Server } from "./server.js";
import { acquireSeveral, type SeveralLocks } from "./several.js";
import { kindOf } from "./watch.js";

/** A lock that `using` holds for its callback, and whether that is over. What the callback has started may run on. */
type Outer = { readonly hold: Hold; isOver: boolean };

/** The locks of the callbacks that the running code was called by, or was started by. */
const context = new AsyncLocalStorage<readonly Outer[]>();

/** Whether the lock is entered again, not asked for. One that is lost says so until its `using` is over. */
const isEntered = ({ hold, isOver }: Outer): boolean =>
  hold.request.wanted.kind === "reentrant" && (isOver ? hold.isHeld : hold.state !== "released");

/**
 * Returns the locks of a server or cluster.
 *
 * `client` is a client of node-redis 5 or 6, ioredis 5 or 6, iovalkey, or a `Driver`, such as that of `glide`. Only its
 * options are used: the package opens a connection of its own, which all clients with the same address and user share.
 */
export const createLocks = (client: LockClient): Locks => new Locks(driverOf(client));

/** Locks on one server or in one cluster. */
export class Locks {
  readonly #server: Server;
  readonly #prefix: string;

  /** @internal */
  constructor(driver: Driver) {
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
    const lock = await this.#acquire(name, options, options?.wait ?? Number.POSITIVE_INFINITY);
    if (lock) return lock;
    const waiters = this.#server.queues.get(this.#prefix + name)?.length ?? 0;
    throw timeoutError(name, options.wait, waiters > MAX_TOGETHER);
  }

  /** Returns the lock if it is free, null if it is not. It never waits. */
  tryAcquire(name: string, options: Omit<LockOptions, "wait"> = {}): Promise<Lock | null> {
    return this.#acquire(name, options, 0);
  }

  /**
   * Runs `work` while the lock is held, and waits for the release. When the lock is lost, `lock.signal` is aborted, and the
   * promise rejects with a LockLostError, unless `work` has thrown an error of its own.
   */
  async using<T>(name: string, options: LockOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    if (typeof work !== "function") throw new TypeError(`lock "${name}": using needs a function`);
    const lock = await this.acquire(name, options);
    const outer = { hold: lock.hold, isOver: false };
    let result: T;
    try {
      result = await context.run([outer, ...(context.getStore() ?? []).filter(isEntered)], work, lock);
    } catch (error) {
      await lock.release().catch(() => {});
      throw error;
    } finally {
      outer.isOver = true;
    }
    await lock.release();
    return result;
  }

  /**
   * Takes over a lock of any form that `lock.detach()` has given away, by its token, and sets its lease.
   * @throws LockLostError if the token does not hold the lock.
   */
  async attach(name: string, token: string, options: Omit<LockOptions, "wait" | "signal"> = {}): Promise<Lock> {
    checkOptions(name, options);
    if (typeof token !== "string" || token === "") throw new TypeError(`lock "${name}": the token must be a text`);
    const key = this.#prefix + name;
    try {
      const kind = await kindOf(this.#server, key, token);
      const form = kind && { reentrant: kind === "reentrant", shared: kind === "shared" };
      const request = new Request(this.#server, key, { ...options, ...form }, token);
      await request.extend(request.wanted.lease);
      if (request.wanted.session) await request.take();
      return new Lock(new Hold(name, request));
    } catch (error) {
      throw isNotHeld(error) ? new LockLostError(name, "the token does not hold it") : publicError(name, error);
    }
  }

  /**
   * Acquires several locks in one order, each as `acquire` does, with one `wait` for all. If one is not free, none is held.
   * @throws RangeError if two names are the same.
   */
  several(names: readonly string[], options: LockOptions = {}): Promise<SeveralLocks> {
    return acquireSeveral(this, names, options);
  }

  /**
   * Returns the label of the holder of a lock, null if it is free, now and after each change, for `for await`. The label of
   * a token without one is the token. It goes on while the server cannot be reached, until `signal` is aborted.
   */
  observe(name: string, { signal }: Pick<LockOptions, "signal"> = {}): AsyncGenerator<string | null, void> {
    checkOptions(name, { signal });
    return observe(this.#server, this.#prefix + name, signal);
  }

  async #acquire(name: string, options: LockOptions, wait: number): Promise<Lock | null> {
    checkOptions(name, options);
    const request = new Request(this.#server, this.#prefix + name, options);
    const isSame = ({ key, server }: Request) => key === request.key && server.driver.id === request.server.driver.id;
    const outers = options.reentrant ? context.getStore() : undefined;
    const outer = outers?.find((outer) => isSame(outer.hold.request) && isEntered(outer))?.hold;
    if (outer) {
      await outer.enter(request.wanted.lease);
      return new Lock(outer);
    }
    const isHeld = await request.acquire(wait, options.signal).catch((error) => {
      throw publicError(name, error);
    });
    return isHeld ? new Lock(new Hold(name, request)) : null;
  }
}
