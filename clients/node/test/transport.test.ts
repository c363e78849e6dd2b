// Connections by TLS and by Sentinel, with the settings of the client.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, suite, test } from "node:test";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis-5";
import { Redis as Valkey } from "iovalkey";
import { createClient, createSentinel } from "redis";
import { createClient as createClient5, createSentinel as createSentinel5 } from "redis-5";
import { createLocks, type LockClient, LockConnectionError, type Locks } from "../src/index.js";
import { unhandled, until } from "./support/conditions.js";
import { freePort, SERVER, TestServer } from "./support/servers.js";

const lease = 60_000;
const host = "127.0.0.1";
const silent = <T extends { on(event: "error", listener: () => void): unknown }>(client: T): T => {
  client.on("error", () => {});
  return client;
};
after(() => assert.deepEqual(unhandled, []));

/** Acquires a lock behind a holder, in the queue of the server. */
async function waitBehindHolder(locks: Locks, name: string, server: TestServer) {
  const holder = await locks.acquire(name, { lease, renew: true });
  const waiting = locks.acquire(name, { lease });
  // The test may fail before it asks for the result.
  waiting.catch(() => {});
  await until(async () => (await server.info(name, "waiters")) === 1, `${name}: a waiter`);
  return { holder, waiting };
}

const isTls = !/Missing implement|Bad directive/.test(
  spawnSync(SERVER, ["--tls-port", "1", "--port", "0"]).stdout.toString(),
);
const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;
const skip = isTls && hasOpenssl ? false : "the server was built without TLS, or there is no openssl";

suite("TLS", { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), "redis-lock-client-"));
  after(() => rmSync(folder, { recursive: true }));
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const newKey = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"];
  const names = ["-subj", "/CN=redis-lock", "-addext", `subjectAltName=IP:${host}`];

  const clients: Record<string, (port: number, ca?: string) => LockClient> = {
    "node-redis 6": (port, ca) => silent(createClient({ socket: { host, port, tls: true, ...(ca && { ca }) } })),
    "node-redis 5": (port, ca) => silent(createClient5({ socket: { host, port, tls: true, ...(ca && { ca }) } })),
    "ioredis 6": (port, ca) => silent(new Redis({ host, port, lazyConnect: true, tls: ca ? { ca } : {} })),
    "ioredis 5": (port, ca) => silent(new Redis5({ host, port, lazyConnect: true, tls: ca ? { ca } : {} })),
    iovalkey: (port, ca) => silent(new Valkey({ host, port, lazyConnect: true, tls: ca ? { ca } : {} })),
  };

  test("locks_are_granted_over_tls", async () => {
    execFileSync("openssl", ["req", ...newKey, ...names, "-keyout", key, "-out", cert], { stdio: "ignore" });
    const port = await freePort();
    const files = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert];
    await using server = await TestServer.start(["--tls-port", String(port), "--tls-auth-clients", "no", ...files]);
    for (const [name, client] of Object.entries(clients)) {
      await assert.rejects(createLocks(client(port)).tryAcquire(name, { lease }), LockConnectionError, name);
      const locks = createLocks(client(port, readFileSync(cert, "utf8")));
      const { holder, waiting } = await waitBehindHolder(locks, name, server);
      await holder.release();
      await (await waiting).release();
    }
  });
});

test("locks_by_sentinel_follow_a_failover", { timeout: 400_000 }, async () => {
  for (let attempt = 1; !(await isFollowed(attempt < 4)); attempt++);
});

/** Returns false if the failover came late because the sentinel was stalled: for 30 seconds it does nothing then. */
async function isFollowed(mayStall: boolean): Promise<boolean> {
  await using master = await TestServer.start(["--repl-diskless-sync-delay", "0"]);
  await using replica = await TestServer.start(["--replicaof", host, String(master.port)]);
  const isConnected = async () => /master_link_status:up/.test(String(await replica.command("INFO", "replication")));
  await until(isConnected, "a replica");
  await using sentinel = await TestServer.sentinel(master);
  const { port } = sentinel;
  let isStalled = false;
  const look = async () => {
    isStalled ||= /sentinel_tilt:1/.test(String(await sentinel.command("INFO", "sentinel").catch(() => {})));
  };
  const looks = setInterval(look, 500);
  const byNodeRedis = { name: "locks", sentinelRootNodes: [{ host, port }] };
  const byIoredis = { name: "locks", sentinels: [{ host, port }], lazyConnect: true };
  const nodeRedis = [silent(createSentinel(byNodeRedis)), silent(createSentinel5(byNodeRedis))] as const;
  try {
    await Promise.all(nodeRedis.map((client) => client.connect()));
    const ioredis = [silent(new Redis(byIoredis)), silent(new Redis5(byIoredis)), silent(new Valkey(byIoredis))];
    for (const client of nodeRedis) {
      const { holder, waiting } = await waitBehindHolder(createLocks(client), "node-redis", master);
      await holder.release();
      await (await waiting).release();
    }
    const locks = ioredis.map((client) => createLocks(client));
    const all = await Promise.all(locks.map((one, n) => waitBehindHolder(one, `lock:${n}`, master)));

    // node-redis finds the new master later: only when the sentinel is connected to it.
    await master.stop();
    // The sentinel closes the connections to the new master.
    const role = () => replica.command("ROLE").catch(() => "unknown");
    await until(async () => String(await role()).startsWith("master"), "a failover");
    for (const [n, { holder, waiting }] of all.entries()) {
      const isThere = async () => (await replica.info(`lock:${n}`, "waiters")) === 1;
      await until(isThere, `${n}: a waiter at the new master`);
      assert.equal(holder.signal.aborted, false, String(n));
      await holder.release();
      await (await waiting).release();
    }
    return true;
  } catch (error) {
    if (!isStalled || !mayStall) throw error;
    return false;
  } finally {
    clearInterval(looks);
    for (const client of nodeRedis) client.destroy();
  }
}
