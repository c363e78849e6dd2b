import { GlideClient } from "@valkey/valkey-glide";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis-5";
import { Redis as Valkey } from "iovalkey";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis-5";
import { createLocks, glide, type LockClient, type Locks } from "../../src/index.js";

/** A client library: how a client for a port is made. */
export interface Library {
  readonly name: string;
  client(port: number): LockClient;
}

const silent = <T extends { on(event: "error", listener: () => void): unknown }>(client: T): T => {
  client.on("error", () => {});
  return client;
};

/** The libraries whose connections bring messages. */
export const LIBRARIES: readonly Library[] = [
  { name: "node-redis 6", client: (port) => silent(createClient({ url: `redis://127.0.0.1:${port}` })) },
  { name: "node-redis 5", client: (port) => silent(createClient5({ url: `redis://127.0.0.1:${port}` })) },
  { name: "ioredis 6", client: (port) => silent(new Redis(port, { lazyConnect: true })) },
  { name: "ioredis 5", client: (port) => silent(new Redis5(port, { lazyConnect: true })) },
  { name: "iovalkey", client: (port) => silent(new Valkey(port, { lazyConnect: true })) },
];

export const GLIDE: Library = {
  name: "valkey-glide",
  client: (port) => glide(GlideClient, { addresses: [{ host: "127.0.0.1", port }] }),
};

/** Returns the locks of a server by the first library, for tests that are the same with all. */
export const locksOn = (port: number, library = LIBRARIES[0]): Locks => createLocks((library as Library).client(port));
