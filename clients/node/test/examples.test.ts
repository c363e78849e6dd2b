import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Queue } from "bullmq";
import { createClient } from "redis";
import { type Charge, startWorker } from "../examples/bullmq-worker.js";
import { follow, lead } from "../examples/cron-leader.js";
import { buildApp as buildExpressApp } from "../examples/express-route.js";
import { buildApp } from "../examples/fastify-route.js";
import { POST } from "../examples/nextjs-route.js";
import { until } from "./support/conditions.js";
import { TestServer } from "./support/servers.js";

const server = TestServer.forAll();

test("fastify_route_deposits_one_at_a_time", async () => {
  const app = buildApp(createClient({ url: server.url }).on("error", () => {}));
  const deposit = () => app.inject({ method: "POST", url: "/accounts/7/deposit" });
  const replies = await Promise.all(Array.from({ length: 20 }, deposit));
  assert.deepEqual(
    replies.map((reply) => reply.json().balance).sort((one, other) => one - other),
    Array.from({ length: 20 }, (_, n) => n + 1),
  );
  await app.close();
});

test("express_route_deposits_one_at_a_time", async () => {
  const app = buildExpressApp(createClient({ url: server.url }).on("error", () => {}));
  const listener = app.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address() as AddressInfo;
  const deposit = async () => {
    const reply = await fetch(`http://127.0.0.1:${port}/accounts/8/deposit`, { method: "POST" });
    return ((await reply.json()) as { balance: number }).balance;
  };
  const balances = await Promise.all(Array.from({ length: 20 }, deposit));
  assert.deepEqual(
    balances.sort((one, other) => one - other),
    Array.from({ length: 20 }, (_, n) => n + 1),
  );
  listener.closeAllConnections();
  listener.close();
});

test("bullmq_workers_run_one_job_for_each_customer", async () => {
  const connection = { host: "127.0.0.1", port: server.port };
  const queue = new Queue<Charge>("charges", { connection });
  const jobs = Array.from({ length: 60 }, (_, n) => ({ name: "charge", data: { customer: `${n % 3}`, cents: n } }));
  await queue.addBulk(jobs.map((job) => ({ ...job, opts: { attempts: 3 } })));
  const [busy, done] = [new Set<string>(), [] as number[]];
  let [most, isFirst] = [0, true];
  const charge = async ({ customer, cents }: Charge, signal: AbortSignal) => {
    assert.ok(!busy.has(customer), "one for each customer");
    busy.add(customer);
    most = Math.max(most, busy.size);
    if (isFirst) {
      isFirst = false;
      setTimeout(() => server.command("DEL", `customer:${customer}`), 50);
      await once(signal, "abort");
      busy.delete(customer);
      throw signal.reason;
    }
    await sleep(2);
    busy.delete(customer);
    done.push(cents);
  };
  const workers = [startWorker(connection, charge), startWorker(connection, charge)];
  await until(() => done.length === 60, "all jobs");
  assert.deepEqual(
    done.sort((one, other) => one - other),
    jobs.map((_, n) => n),
  );
  assert.ok(most > 1, `${most} customers at a time`);
  await Promise.all([...workers, queue].map((one) => one.close()));
});

test("one_leader_runs_the_task", async () => {
  const stops = Array.from({ length: 3 }, () => new AbortController());
  const runs = [0, 0, 0];
  const leaders = stops.map((stop, n) => {
    const client = createClient({ url: server.url }).on("error", () => {});
    const task = async () => {
      runs[n] = (runs[n] ?? 0) + 1;
    };
    return lead(client, 20, task, stop.signal);
  });
  const [seen, end] = [[] as (string | null)[], new AbortController()];
  const client = createClient({ url: server.url }).on("error", () => {});
  const following = follow(client, (leader) => seen.push(leader), end.signal).catch(() => {});
  const leading = () => runs.filter((count) => count > 0).length;
  await until(() => runs.some((count) => count > 3), "a leader");
  assert.equal(leading(), 1);
  stops[runs.findIndex((count) => count > 0)]?.abort();
  await until(() => runs.filter((count) => count > 3).length === 2, "the next leader");
  assert.equal(leading(), 2);
  for (const stop of stops) stop.abort();
  await Promise.all(leaders);
  await until(() => seen.includes(`pid-${process.pid}`) && seen.at(-1) === null, "no leader");
  end.abort();
  await following;
});

test("nextjs_route_pays_an_order_once", async () => {
  process.env.REDIS_URL = server.url;
  const pay = (order: string, signal?: AbortSignal) =>
    POST(new Request("http://localhost", { method: "POST", ...(signal ? { signal } : {}) }), {
      params: Promise.resolve({ order }),
    });
  const before = await server.connections();
  const replies = await Promise.all(Array.from({ length: 30 }, (_, n) => pay(`${n % 5}`)));
  assert.equal(replies.filter(({ status }) => status === 201).length, 5);
  assert.ok(replies.every(({ status }) => [201, 409, 503].includes(status)));
  assert.ok((await server.connections()) <= before + 1);
  await server.command("LOCK.ACQUIRE", "order:busy", "another", "PX", "60000");
  assert.equal((await pay("busy")).status, 503);
  const stop = new AbortController();
  const aborted = assert.rejects(pay("busy", stop.signal), { name: "AbortError" });
  await until(async () => (await server.info("order:busy", "waiters")) === 1, "a waiter");
  stop.abort();
  await aborted;
  assert.equal(await server.info("order:busy", "waiters"), 0);
});
