import type { Driver } from "../driver.js";
import { type IoredisClient, ioredis, isIoredis } from "./ioredis.js";
import { isNodeRedis, type NodeRedisClient, nodeRedis } from "./node-redis.js";

/** What `createLocks` takes. */
export type LockClient = NodeRedisClient | IoredisClient | Driver;

/** Returns the driver for a client. Throws a TypeError for one that is not known. */
export function driverOf(client: LockClient): Driver {
  if ("open" in client) return client;
  if (isIoredis(client)) return ioredis(client);
  if (isNodeRedis(client)) return nodeRedis(client);
  throw new TypeError("createLocks needs a client of node-redis 5 or newer, ioredis, or iovalkey, or a driver");
}
