import type { Driver, Link, LinkEvents } from "../driver.js";
import { idOf } from "./ids.js";
import { type Address, type AddressMap, anyOf, mapped } from "./nodes.js";

/** A client, a client of a cluster, or one of Sentinel, of node-redis 5 or 6. */
export interface NodeRedisClient {
  sendCommand(...args: never[]): unknown;
  sSubscribe(...args: never[]): unknown;
}

interface Options {
  readonly socket?: { host?: string; port?: number; path?: string; tls?: unknown };
  readonly username?: string;
  readonly password?: string;
  readonly database?: number;
  readonly credentialsProvider?: object;
}

/** What the package uses of a client. */
interface Client {
  readonly options: Options;
  duplicate(overrides: object): Client;
  connect(): Promise<unknown>;
  readonly isOpen: boolean;
  destroy(): void;
  unref(): void;
  sendCommand(words: readonly string[]): Promise<unknown>;
  sSubscribe(channel: string, listener: (text: string) => void): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): this;
}

interface Cluster {
  readonly _options?: {
    readonly rootNodes?: object;
    readonly defaults?: object;
    readonly nodeAddressMap?: AddressMap;
  };
  readonly masters: readonly object[];
  nodeClient(node: object): Client | Promise<Client>;
}

interface Sentinel {
  _execute(isReadonly: false, run: (master: Client) => Promise<Client>): Promise<Client>;
}

export const isNodeRedis = (client: object): client is NodeRedisClient =>
  "sendCommand" in client && "sSubscribe" in client;

export function nodeRedis(client: NodeRedisClient): Driver {
  const { _keyPrefix: prefix = "" } = client as { _keyPrefix?: string | Buffer };
  const make = "nodeClient" in client ? cluster : "getSentinelNode" in client ? sentinel : single;
  return { ...make(client as never), prefix: String(prefix) };
}

function single(client: Client): Driver {
  const { socket = {}, username, password, database, credentialsProvider } = client.options ?? {};
  const provider = username || password ? null : idOf(credentialsProvider);
  const id = [socket, username, password, database, provider];
  return { id: JSON.stringify(["node-redis", ...id]), open: (events) => open(client, {}, events) };
}

function cluster(client: Cluster): Driver {
  return {
    id: JSON.stringify(["node-redis", client._options?.rootNodes ?? idOf(client), client._options?.defaults]),
    inCluster: true,
    open: async (events, address) => {
      const node = anyOf(client.masters);
      if (!node) throw new Error("the cluster client is not connected");
      return open(await client.nodeClient(node), mapped(client._options?.nodeAddressMap, address), events);
    },
  };
}

/** The master may be another one each time. */
function sentinel(client: Sentinel): Driver {
  return {
    id: JSON.stringify(["node-redis", "sentinel", idOf(client)]),
    open: async (events) => open(await client._execute(false, async (master) => master), {}, events),
  };
}

/** With version 3 of the protocol, commands and messages share the connection. */
async function open(from: Client, address: Partial<Address>, events: LinkEvents, tracks = true): Promise<Link> {
  const where = address.host === "" ? { port: address.port } : address;
  const one = from.duplicate({
    RESP: 3,
    name: "redis-lock-client",
    disableClientInfo: true,
    emitInvalidate: tracks,
    clientSideCache: undefined,
    maintNotifications: "disabled",
    pingInterval: undefined,
    commandOptions: { timeout: undefined },
    commandsQueueMaxLength: undefined,
    disableOfflineQueue: true,
    readonly: false,
    socket: { ...from.options?.socket, ...where, reconnectStrategy: false, socketTimeout: undefined },
  });
  one.on("error", () => {}).on("sharded-channel-moved", events.lost);
  one.on("invalidate", (key: unknown) => events.changed(key === null ? null : String(key)));
  const close = () => {
    if (one.isOpen) one.destroy();
  };
  try {
    await one.connect();
  } catch (error) {
    close();
    // A user without the right to CLIENT TRACKING connects without it.
    if (tracks && /^NOPERM/.test(String((error as Error).message))) return open(from, address, events, false);
    throw error;
  }
  one.on("error", events.lost).on("end", events.lost).unref();
  return {
    send: (words) => one.sendCommand(words),
    subscribe: async (channel) => {
      await one.sSubscribe(channel, events.message);
      return true;
    },
    // It does so from its beginning.
    ...(tracks ? { track: async () => true } : {}),
    close,
  };
}
