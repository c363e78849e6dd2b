import type { Driver } from "../driver.js";
import { type IoredisClient, ioredis, isIoredis } from "./ioredis.js";
import { isNodeRedis, type NodeRedisClient, nodeRedis } from "./node-redis.js";

/** What `createLocks` takes. */
export type LockClient = NodeRedisClient | IoredisClient | Driver;

/** Returns the driver for a client. Throws a TypeError for one that is not known. */
export function driverOf(client: LockClient): Driver {
  const reason = client && typeof client === "object" ? refusal(client) : "createLocks needs a client";
  if (reason) throw new TypeError(reason);
  if ("open" in client) return client;
  if (isIoredis(client)) return ioredis(client);
  if (isNodeRedis(client)) return nodeRedis(client);
  throw new TypeError("createLocks needs a client of node-redis 5 or newer, ioredis, or iovalkey, or a driver");
}

/** Returns what is right instead of clients that people try. */
function refusal(client: object): string | undefined {
  if ("totalClients" in client) {
    return "createLocks needs a client, not a pool: give it a client of createClient with the pool's options";
  }
  if ("sSubscribe" in client && !("destroy" in client))
    return "node-redis 4 is too old: createLocks needs node-redis 5 or newer";
  if ("keyData" in client) return "ioredis-mock has no connection to a server: createLocks needs a client of ioredis";
  return undefined;
}
