import { AsyncLocalStorage } from "node:async_hooks";
import { setMaxListeners } from "node:events";
import type { Driver } from "./driver.js";
import { driverOf, type LockClient } from "./drivers/index.js";
import { LockLostError, ServerError } from "./errors.js";
import { Hold } from "./hold.js";
import { Lock, SeveralLocks } from "./lock.js";
import { checkOptions, isShare, type LeaseOptions, type LockOptions } from "./options.js";
import { MAX_TOGETHER, Queue } from "./queue.js";
import { isNotHeld, isPassing, publicError, timeoutError } from "./replies.js";
import { HEARD_MS, SILENCE_MS, wantedOf } from "./request.js";
import { Server } from "./server.js";
import { abortable, Deferred, MAX_TIMER_MS, now, RETRY_MS, within } from "./time.js";
import { infoOf, Watch } from "./watch.js";

/** The locks of the calls of `using` that the running code was called by, or was started by: it may run on after them. */
const context = new AsyncLocalStorage<readonly Hold[]>();

/** Whether a lock is entered again, not asked for. One that is lost says so until it is released. */
const isEntered = ({ wanted, state }: Hold): boolean => wanted.kind === "reentrant" && state !== "released";

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
  acquire(name: string, options: LockOptions = {}): Promise<Lock> {
    return this.#acquire(name, options, options?.wait ?? Number.POSITIVE_INFINITY, true) as Promise<Lock>;
  }

  /** Returns the lock if it is free, null if it is not. It never waits. */
  tryAcquire(name: string, options: Omit<LockOptions, "wait"> = {}): Promise<Lock | null> {
    return this.#acquire(name, options, 0, false);
  }

  /**
   * Runs `work` while the lock is held, and waits for the release. When the lock is lost, `lock.signal` is aborted, and the
   * promise rejects with a LockLostError, unless `work` has thrown an error of its own.
   */
  async using<T>(name: string, options: LockOptions, work: (lock: Lock) => T | Promise<T>): Promise<T> {
    if (typeof work !== "function") throw new TypeError(`lock "${name}": using needs a function`);
    const lock = await this.acquire(name, options);
    const outers = [lock.hold, ...(context.getStore() ?? []).filter(isEntered)];
    const [worked] = await Promise.allSettled([context.run(outers, async () => work(lock))]);
    const [released] = await Promise.allSettled([lock.release()]);
    for (const one of [worked, released]) if (one.status === "rejected") throw one.reason;
    return (worked as PromiseFulfilledResult<Awaited<T>>).value;
  }

  /**
   * Takes over a lock of any form that `lock.detach()` has given away, by its token, and sets its lease.
   * @throws LockLostError if the token does not hold the lock.
   */
  async attach(name: string, token: string, options: LeaseOptions = {}): Promise<Lock> {
    checkOptions(name, options);
    if (typeof token !== "string" || token === "") throw new TypeError(`lock "${name}": the token must be a text`);
    try {
      const { state } = await infoOf(this.#server, this.#prefix + name);
      const form = { reentrant: state === "reentrant", shared: state === "shared", permits: undefined };
      const hold = new Hold(this.#server, this.#prefix, name, { ...options, ...form }, token);
      await hold.takeOver();
      return new Lock(hold);
    } catch (error) {
      throw isNotHeld(error) ? new LockLostError(name, "the token does not hold it") : publicError(name, error);
    }
  }

  /**
   * Acquires several locks, each as `acquire` does, with one `wait` for all. If one is not free, none is held. Their order is
   * that of the bytes of their names for all callers, so that no two wait for each other.
   * @throws RangeError if two names are the same.
   */
  async several(names: readonly string[], options: LockOptions = {}): Promise<SeveralLocks> {
    if (!Array.isArray(names)) throw new TypeError("several locks need an array of names");
    for (const name of names) checkOptions(name, options);
    const sorted = [...new Set(names)].sort((one, other) => Buffer.compare(Buffer.from(one), Buffer.from(other)));
    if (sorted.length === 0 || sorted.length < names.length) throw new RangeError("several locks need different names");
    const deadline = now() + (options.wait ?? Number.POSITIVE_INFINITY);
    const held: Lock[] = [];
    try {
      for (const name of sorted)
        held.push((await this.#acquire(name, options, Math.max(deadline - now(), 0), true)) as Lock);
      // The lease of one may have ended while the next was awaited.
      const lost = held.find((lock) => !lock.isHeld);
      if (lost) throw new LockLostError(lost.name, "it is no longer held");
      return new SeveralLocks(held);
    } catch (error) {
      for (const lock of held.reverse()) await lock.release().catch(() => {});
      throw error;
    }
  }

  /**
   * Yields the label of the holder of a lock, null if it is free, now and after each change, for `for await`. The label of
   * a token without one is the token. It goes on while the server cannot be reached, until `signal` is aborted.
   */
  async *observe(name: string, { signal }: Pick<LockOptions, "signal"> = {}): AsyncGenerator<string | null, void> {
    checkOptions(name, { signal });
    const [server, key] = [this.#server, this.#prefix + name];
    const watch = server.watches.get(key) ?? new Watch(server, key);
    let change = new Deferred<void>();
    const observer = { seen: () => change.resolve() };
    watch.add(observer);
    try {
      for (let last: string | null | undefined; ; ) {
        change = new Deferred();
        const tracked = server.connection(key).track();
        const looked = tracked.then(() => infoOf(server, key));
        const info = await abortable(looked, signal).catch((error) => {
          if (!isPassing(error)) throw publicError(name, error);
        });
        if (info && info.label !== last) yield info.label;
        last = info ? info.label : last;
        // The server may not report changes, or notice late that a lease has ended.
        await abortable(within(change.promise, info ? SILENCE_MS : RETRY_MS, undefined), signal);
      }
    } finally {
      change.resolve();
      watch.delete(observer);
    }
  }

  async #acquire(name: string, options: LockOptions, wait: number, isRequired: boolean): Promise<Lock | null> {
    checkOptions(name, options);
    const [server, key, { signal, maxWaiters }] = [this.#server, this.#prefix + name, options];
    signal?.throwIfAborted();
    // One signal may end thousands of waits.
    if (signal) setMaxListeners(0, signal);
    const isOuter = (one: Hold) => one.key === key && one.server.driver.id === server.driver.id && isEntered(one);
    const outer = options.reentrant && context.getStore()?.find(isOuter);
    if (outer) {
      await abortable(outer.enter(wantedOf(options)), signal);
      return new Lock(outer);
    }
    const deadline = now() + wait;
    const queue = (wait > 0 && server.queues.get(key)) || new Queue();
    if (maxWaiters && queue.length >= maxWaiters) throw publicError(name, new ServerError("QUEUEFULL"));
    if (wait > 0) server.queues.set(key, queue);
    const turn = queue.join(isShare(options));
    let [hold, timer]: [Hold?, NodeJS.Timeout?] = [];
    try {
      if (turn.state === "waiting" && wait <= MAX_TIMER_MS) timer = setTimeout(turn.resolve, Math.ceil(wait), false);
      const hasTurn = turn.state === "come" || (await abortable(turn.promise, signal));
      // Without a turn in time, only a server that is lost or silent is asked: one attempt shows whether that is an error.
      const isLost = !hasTurn && server.heardAt < Math.max(server.connection(key).openedAt, now() - HEARD_MS);
      if (hasTurn || isLost) hold = new Hold(server, this.#prefix, name, options);
      if (hold && (await abortable(hold.attempt(deadline), signal))) return new Lock(hold);
    } catch (error) {
      throw publicError(name, error);
    } finally {
      clearTimeout(timer);
      const withdrawn = hold?.state === "waiting" && hold.withdraw();
      queue.leave(turn);
      if (wait > 0 && queue.length === 0) server.queues.delete(key);
      if (withdrawn) await withdrawn;
    }
    // In a crowd, to throw it takes as long as all the rest.
    return isRequired ? Promise.reject(timeoutError(name, options.wait, queue.length > MAX_TOGETHER)) : null;
  }
}
