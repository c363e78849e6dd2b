import { type EventEmitter, once } from "node:events";
import type { Driver, Link, LinkEvents } from "../driver.js";
import { idOf } from "./ids.js";
import { type Address, type AddressMap, anyOf, mapped } from "./nodes.js";

/** A client, or a client of a cluster, of ioredis 5 or 6, or of iovalkey. */
export interface IoredisClient {
  readonly options: object;
  call(...args: never[]): unknown;
  duplicate(...args: never[]): unknown;
}

/** What the package uses of a client. */
interface Client {
  readonly options: Readonly<Record<string, unknown>>;
  readonly stream?: { unref(): void; destroy(): void; cork(): void; uncork(): void };
  duplicate(overrides: object): Client;
  connect(): Promise<unknown>;
  disconnect(): void;
  call(name: string, ...words: string[]): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): this;
}

interface Cluster extends Pick<Client, "connect"> {
  readonly status: string;
  readonly startupNodes?: object;
  readonly options: { readonly redisOptions?: object; readonly keyPrefix?: string; readonly natMap?: AddressMap };
  nodes(role: "master"): Client[];
}

/** One connection that fails for good, keeps the names of keys, and speaks version 2 of the protocol as ioredis 5 does. */
const OVERRIDES = {
  lazyConnect: true,
  protocol: 2,
  replyMapping: "legacy",
  connectionName: undefined,
  keyPrefix: "",
  retryStrategy: () => null,
  sentinelRetryStrategy: () => null,
  reconnectOnError: null,
  maxRetriesPerRequest: null,
  autoResubscribe: false,
  autoResendUnfulfilledCommands: false,
  enableOfflineQueue: false,
  enableReadyCheck: false,
  disableClientInfo: true,
  enableAutoPipelining: false,
  stringNumbers: false,
  commandTimeout: undefined,
  disconnectTimeout: 0,
  socketTimeout: undefined,
  readOnly: false,
};

const CONNECT_MS = 5_000;

/** Where version 2 of the protocol brings what CLIENT TRACKING reports. */
const INVALIDATED = "__redis__:invalidate";

export const isIoredis = (client: object): client is IoredisClient => "call" in client && "duplicate" in client;

export function ioredis(client: IoredisClient): Driver {
  if ("nodes" in client) return cluster(client as unknown as Cluster);
  const from = client as unknown as Client;
  const { host, port, path, sentinels, name, username, password, db, tls, keyPrefix } = from.options;
  const id = [host, port, path, sentinels, name, username, password, db, tls];
  return {
    id: JSON.stringify(["ioredis", ...id]),
    prefix: String(keyPrefix ?? ""),
    open: (events) => open(from, {}, events),
  };
}

function cluster(client: Cluster): Driver {
  return {
    id: JSON.stringify(["ioredis", client.startupNodes ?? idOf(client), client.options.redisOptions]),
    prefix: client.options.keyPrefix ?? "",
    inCluster: true,
    open: async (events, address) => open(await anyNode(client), mapped(client.options.natMap, address), events),
  };
}

/** Returns a client for a node, whose options serve for all nodes. */
async function anyNode(client: Cluster): Promise<Client> {
  if (client.status === "wait") await client.connect();
  if (client.nodes("master").length === 0) {
    await once(client as unknown as EventEmitter, "ready", { signal: AbortSignal.timeout(CONNECT_MS) });
  }
  return anyOf(client.nodes("master")) ?? Promise.reject(new Error("the cluster has no master"));
}

function unlessForbidden(error: unknown): void {
  if (!/^NOPERM/.test(String((error as Error).message))) throw error;
}

/** In version 2 of the protocol, a connection that listens takes no other commands: there is a second one for it. */
async function open(from: Client, address: Partial<Address>, events: LinkEvents): Promise<Link> {
  const where = address.host === "" ? { port: address.port } : address;
  const all: Client[] = [];
  const close = () => {
    for (const one of all) {
      one.disconnect();
      one.stream?.destroy();
    }
  };
  const connect = async () => {
    const one = from.duplicate({ ...OVERRIDES, ...where });
    all.push(one);
    let reason: unknown;
    one.on("error", (error: unknown) => {
      reason = error;
    });
    // A connection that is accepted is no server yet: it is one that has replied.
    const name = () => one.call("client", "SETNAME", "redis-lock-client").catch(unlessForbidden);
    await one
      .connect()
      .then(name)
      .catch((error: unknown) => {
        close();
        throw reason ?? error;
      });
    one.on("end", events.lost);
    one.stream?.unref();
    return one;
  };
  const listen = async () => {
    const one = await connect();
    const id = Number(await one.call("CLIENT", "ID"));
    one.on("smessage", (_: string, text: string) => events.message(text));
    one.on("message", (_: string, key: string) => events.changed(key === "" ? null : key));
    one.on("moved", events.lost);
    return { one, id };
  };
  const commands = await connect();
  let listener: ReturnType<typeof listen> | undefined;
  let isCorked = false;
  /** Commands of one turn of the event loop are one write to the socket, which costs more than all else. */
  const cork = () => {
    if (isCorked) return;
    const { stream } = commands;
    isCorked = true;
    stream?.cork();
    process.nextTick(() => {
      isCorked = false;
      stream?.uncork();
    });
  };
  return {
    send: (words) => {
      cork();
      return commands.call(...(words as [string, ...string[]]));
    },
    subscribe: async (channel) => {
      listener ??= listen();
      return (await listener).one.call("ssubscribe", channel);
    },
    track: async () => {
      listener ??= listen();
      const { one, id } = await listener;
      await one.call("subscribe", INVALIDATED);
      return commands.call("CLIENT", "TRACKING", "ON", "REDIRECT", String(id));
    },
    close,
  };
}
