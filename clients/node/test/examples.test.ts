import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createClient } from "redis";
import { lead } from "../examples/cron-leader.js";
import { buildApp as buildExpressApp } from "../examples/express-route.js";
import { buildApp } from "../examples/fastify-route.js";
import { POST } from "../examples/serverless.js";
import { type Job, work } from "../examples/worker.js";
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

test("workers_run_one_job_for_each_customer", async () => {
  const client = await createClient({ url: server.url })
    .on("error", () => {})
    .connect();
  for (let id = 0; id < 60; id++) await client.rPush("jobs", JSON.stringify({ customer: `${id % 3}`, id }));
  const [busy, done] = [new Set<string>(), new Set<number>()];
  const run = async ({ customer, id }: Job) => {
    assert.ok(!busy.has(customer));
    busy.add(customer);
    await sleep(2);
    busy.delete(customer);
    done.add(id);
  };
  await Promise.all(Array.from({ length: 10 }, () => work(client as ReturnType<typeof createClient>, run)));
  assert.equal(done.size, 60);
  client.destroy();
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
  const leading = () => runs.filter((count) => count > 0).length;
  await until(() => runs.some((count) => count > 3), "a leader");
  assert.equal(leading(), 1);
  stops[runs.findIndex((count) => count > 0)]?.abort();
  await until(() => runs.filter((count) => count > 3).length === 2, "the next leader");
  assert.equal(leading(), 2);
  for (const stop of stops) stop.abort();
  await Promise.all(leaders);
});

test("serverless_calls_share_a_connection", async () => {
  process.env.REDIS_URL = server.url;
  const pay = (n: number) =>
    POST(new Request("http://localhost", { method: "POST", body: JSON.stringify({ order: `${n % 5}` }) }));
  const replies = await Promise.all(Array.from({ length: 30 }, (_, n) => pay(n)));
  const paid = replies.filter((reply) => reply.status === 200).length;
  assert.ok(paid >= 5 && replies.every(({ status }) => status === 200 || status === 409));
  assert.ok((await server.connections()) <= 1);
});
