import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Cluster } from "ioredis";
import { Cluster as Cluster5 } from "ioredis-5";
import { Cluster as ValkeyCluster } from "iovalkey";
import { createCluster } from "redis";
import { createCluster as createCluster5 } from "redis-5";
import { createLocks, type LockClient, LockConnectionError, LockLostError, LockTimeoutError } from "../src/index.js";
import { slotOf } from "../src/slots.js";
import { unhandled, until } from "./support/conditions.js";
import { ownTime, withLease } from "./support/load.js";
import { freePort, TestServer } from "./support/servers.js";

const lease = 60_000;
const node = (port: number) => ({ host: "127.0.0.1", port });

interface ClusterClient {
  readonly client: LockClient;
  close(): void;
}

const CLIENTS: Record<string, (port: number) => Promise<ClusterClient>> = {
  "node-redis 6": async (port) => {
    const client = createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] }).on("error", () => {});
    await client.connect();
    return { client, close: () => client.destroy() };
  },
  "node-redis 5": async (port) => {
    const client = createCluster5({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] }).on("error", () => {});
    await client.connect();
    return { client, close: () => client.destroy() };
  },
  "ioredis 6": async (port) => {
    const client = new Cluster([node(port)], { lazyConnect: true }).on("error", () => {});
    return { client, close: () => client.disconnect() };
  },
  "ioredis 5": async (port) => {
    const client = new Cluster5([node(port)]).on("error", () => {});
    return { client, close: () => client.disconnect() };
  },
  iovalkey: async (port) => {
    const client = new ValkeyCluster([node(port)]).on("error", () => {});
    return { client, close: () => client.disconnect() };
  },
};

for (const [name, open] of Object.entries(CLIENTS)) {
  suite(name, () => {
    let servers: TestServer[];
    let one: ClusterClient;
    before(async () => {
      servers = await startCluster();
      one = await open((servers[0] as TestServer).port);
    });
    after(async () => {
      one?.close();
      for (const server of servers ?? []) await server[Symbol.asyncDispose]();
      assert.deepEqual(unhandled, []);
    });
    const owner = (key: string): TestServer => servers[slotOf(key) < 8192 ? 0 : 1] as TestServer;

    test("locks_of_all_nodes_are_granted_in_order", async () => {
      const locks = createLocks(one.client);
      const work = async (key: string) => {
        const order: number[] = [];
        const add = (n: number) => locks.using(key, { lease }, () => order.push(n));
        await Promise.all([1, 2, 3, 4, 5].map(add));
        assert.deepEqual(order, [1, 2, 3, 4, 5]);
      };
      await Promise.all(Array.from({ length: 20 }, (_, n) => work(`door:${n}`)));
      for (const server of servers) assert.ok((await server.connections()) <= 2);
    });

    test("waits_and_losses_are_reported_by_each_node", async () => {
      const locks = createLocks(one.client);
      for (const key of ["a", "b", "c", "{x}y"]) {
        const lock = await locks.acquire(key, { lease });
        const waiting = locks.acquire(key, { lease, wait: 10_000 });
        await until(async () => (await owner(key).info(key, "waiters")) === 1, "a waiter");
        await lock.release();
        const next = await waiting;
        assert.ok((await next.fence()) > 0);
        const lost = once(next.signal, "abort");
        await until(() => owner(key).isTracking(), "the lock is watched");
        const took = await ownTime(() => Promise.all([lost, owner(key).command("DEL", key)]), owner(key));
        assert.ok(took < 50, `${took} ms`);
        assert.ok(next.signal.reason instanceof LockLostError);
      }
    });

    test("wait_follows_its_slot", async () => {
      const locks = createLocks(one.client);
      const key = "moving";
      const [from, to] = slotOf(key) < 8192 ? servers : [...servers].reverse();
      assert.ok(from && to);
      const lock = await locks.acquire(key, { lease });
      const waiting = locks.acquire(key, { lease });
      await until(async () => (await from.info(key, "waiters")) === 1, "a waiter");
      await moveSlot(from, to, key);
      await until(async () => (await to.info(key, "waiters")) === 1, "the waiter is at the other node");
      await lock.release();
      await (await waiting).release();
      await moveSlot(to, from, key);
      await locks.using(key, { lease }, () => {});
    });

    test("session_follows_its_slot", async () => {
      const key = "session";
      const [from, to] = slotOf(key) < 8192 ? servers : [...servers].reverse();
      assert.ok(from && to);
      const follow = async (lease: number) => {
        await using lock = await createLocks(one.client).acquire(key, { lease, session: true });
        await until(() => from.isTracking(), "the lock is watched");
        await moveSlot(from, to, key);
        try {
          await sleep(2 * lease);
          assert.equal(lock.signal.aborted, false);
          assert.equal(await to.info(key, "owner"), lock.token);
          await lock.release();
        } finally {
          await moveSlot(to, from, key);
        }
      };
      await withLease(1_500, follow, to);
    });

    test("aborted_waits_leave_nothing", async () => {
      const locks = createLocks(one.client);
      const attempt = async (n: number) => {
        const signal = AbortSignal.timeout(Math.ceil(Math.random() * 30));
        try {
          await using _lock = await locks.acquire(`abort:${n % 10}`, { lease, signal });
          await sleep(1);
        } catch (error) {
          if (error !== signal.reason && !(error instanceof LockTimeoutError)) throw error;
        }
      };
      await Promise.all(Array.from({ length: 300 }, (_, n) => attempt(n)));
      for (let n = 0; n < 10; n++) assert.equal(await owner(`abort:${n}`).info(`abort:${n}`, "state"), "free");
    });
  });
}

test("address_maps_of_clients_apply_to_redirections", async (t) => {
  const hidden = ["--cluster-announce-hostname", "node.invalid", "--cluster-preferred-endpoint-type", "hostname"];
  const servers = await startCluster(hidden);
  const [{ port }] = servers as [TestServer, TestServer];
  const map = Object.fromEntries(servers.map((server) => [`node.invalid:${server.port}`, node(server.port)]));
  const find = (address: string) => map[address] as ReturnType<typeof node>;
  const rootNodes = [{ url: `redis://127.0.0.1:${port}` }];
  const byNodeRedis = [map, find].flatMap((nodeAddressMap) => [
    createCluster({ rootNodes, nodeAddressMap }).on("error", () => {}),
    createCluster5({ rootNodes, nodeAddressMap }).on("error", () => {}),
  ]);
  const byIoredis = [map, find].flatMap((natMap) => [
    new Cluster([node(port)], { lazyConnect: true, natMap }),
    new Cluster5([node(port)], { lazyConnect: true, natMap }),
    new ValkeyCluster([node(port)], { lazyConnect: true, natMap }),
  ]);
  t.after(async () => {
    for (const client of byNodeRedis) client.destroy();
    for (const client of byIoredis) client.disconnect();
    for (const server of servers) await server[Symbol.asyncDispose]();
  });
  await Promise.all(byNodeRedis.map((client) => client.connect()));
  for (const [n, client] of [...byNodeRedis, ...byIoredis].entries()) {
    const locks = createLocks(client);
    const work = (name: string) => locks.using(name, { lease, wait: 5_000 }, () => {});
    await Promise.all(Array.from({ length: 12 }, (_, lock) => work(`mapped:${n}:${lock}`)));
  }
});

for (const Client of [Cluster, Cluster5, ValkeyCluster]) {
  test("absent_cluster_is_an_error", { timeout: 30_000 }, async () => {
    const client = new Client([node(await freePort())], { lazyConnect: true }).on("error", () => {});
    for (let n = 0; n < 2; n++) {
      await assert.rejects(createLocks(client).acquire("door", { lease, wait: 1_000 }), LockConnectionError);
    }
    client.disconnect();
  });
}

/** Starts a cluster of two nodes: the second one has the slots from 8192 on. */
async function startCluster(options: readonly string[] = []): Promise<TestServer[]> {
  const [first, second] = [await TestServer.node(options), await TestServer.node(options)];
  await first.command("CLUSTER", "ADDSLOTSRANGE", "0", "8191");
  await second.command("CLUSTER", "ADDSLOTSRANGE", "8192", "16383");
  await second.command("CLUSTER", "SET-CONFIG-EPOCH", "2");
  await second.command("CLUSTER", "MEET", "127.0.0.1", String(first.port), String(first.busPort));
  for (const server of [first, second]) {
    const isUp = async () =>
      /cluster_state:ok.*cluster_known_nodes:2/s.test(String(await server.command("CLUSTER", "INFO")));
    await until(isUp, "the cluster is up");
  }
  return [first, second];
}

/** Moves the slot of a key, which is the only one in it, with the key. */
async function moveSlot(from: TestServer, to: TestServer, key: string): Promise<void> {
  const slot = String(slotOf(key));
  const [fromId, toId] = [String(await from.command("CLUSTER", "MYID")), String(await to.command("CLUSTER", "MYID"))];
  await to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", fromId);
  await from.command("CLUSTER", "SETSLOT", slot, "MIGRATING", toId);
  await from.command("MIGRATE", "127.0.0.1", String(to.port), key, "0", "5000");
  await to.command("CLUSTER", "SETSLOT", slot, "NODE", toId);
  await from.command("CLUSTER", "SETSLOT", slot, "NODE", toId);
}
