import { GlideClient } from "@valkey/valkey-glide";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis-5";
import { Redis as Valkey } from "iovalkey";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis-5";
import { createLocks, glide, type LockClient, type Locks } from "../../src/index.js";

/** A client library: how a client for a port is made. `user` is a name and a password, as in a URL. */
export interface Library {
  readonly name: string;
  client(port: number, user?: string): LockClient;
}

const url = (port: number, user = "") => `redis://${user}127.0.0.1:${port}`;
const silent = <T extends { on(event: "error", listener: () => void): unknown }>(client: T): T => {
  client.on("error", () => {});
  return client;
};

/** The libraries whose connections bring messages. */
export const LIBRARIES: readonly Library[] = [
  { name: "node-redis 6", client: (...to) => silent(createClient({ url: url(...to) })) },
  { name: "node-redis 5", client: (...to) => silent(createClient5({ url: url(...to) })) },
  { name: "ioredis 6", client: (...to) => silent(new Redis(url(...to), { lazyConnect: true })) },
  { name: "ioredis 5", client: (...to) => silent(new Redis5(url(...to), { lazyConnect: true })) },
  { name: "iovalkey", client: (...to) => silent(new Valkey(url(...to), { lazyConnect: true })) },
];

export const GLIDE: Library = {
  name: "valkey-glide",
  client: (port) => glide(GlideClient, { addresses: [{ host: "127.0.0.1", port }] }),
};

/** Returns the locks of a server by the first library, for tests that are the same with all. */
export const locksOn = (port: number, library = LIBRARIES[0]): Locks => createLocks((library as Library).client(port));
