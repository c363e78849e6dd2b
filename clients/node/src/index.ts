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

import type { LockClient } from "./drivers/index.js";
import { Locks } from "./locks.js";

export type { Address, Driver, Link, LinkEvents } from "./driver.js";
export { glide } from "./drivers/glide.js";
export type { LockClient } from "./drivers/index.js";
export {
  LockConnectionError,
  LockError,
  LockLostError,
  LockQueueFullError,
  LockTimeoutError,
  ModuleNeededError,
  ServerError,
} from "./errors.js";
export type { Lock } from "./lock.js";
export type { Locks } from "./locks.js";
export type { LockOptions } from "./options.js";

/**
 * Returns the locks of a server or cluster.
 *
 * `client` is a client of node-redis 5 or 6, ioredis 5 or 6, iovalkey, or a `Driver`, such as that of `glide`. Only its
 * options are used: the package opens a connection of its own, which all clients with the same address and user share.
 */
export function createLocks(client: LockClient): Locks {
  return new Locks(client);
}
