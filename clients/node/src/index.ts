/**
 * Locks in Redis and Valkey, native with the server module redis-lock, and by scripts without it.
 *
 * @example
 * ```ts
 * const locks = createLocks(client);
 * await using lock = await locks.acquire("door", { lease: 30_000, wait: 20_000 });
 * ```
 * @module
 */

export type { Driver, Link, LinkEvents } from "./driver.js";
export { glide } from "./drivers/glide.js";
export type { LockClient } from "./drivers/index.js";
export * from "./errors.js";
export type { Held, Lock, SeveralLocks } from "./lock.js";
export { createLocks, type Locks } from "./locks.js";
export type { LockOptions } from "./options.js";
