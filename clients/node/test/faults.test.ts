// Connections that are lost between a request and its reply.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { driverOf } from "../src/drivers/index.js";
import { createLocks, LockConnectionError, LockLostError, LockTimeoutError } from "../src/index.js";
import { until } from "./support/conditions.js";
import { type Fault, faulty } from "./support/faults.js";
import { LIBRARIES } from "./support/libraries.js";
import { TestServer } from "./support/servers.js";

const lease = 600_000;
const server = TestServer.forAll();

for (const library of LIBRARIES) {
  const locksWith = (fault: (words: readonly string[]) => Fault | undefined) =>
    createLocks(faulty(driverOf(library.client(server.port)), fault, (words) => server.command(...words)));

  test(`late_request_before_a_refusal_is_withdrawn, ${library.name}`, async () => {
    await server.command("LOCK.ACQUIRE", "late", "another");
    let faults = 0;
    const locks = locksWith(() => (faults++ === 0 ? "executed late" : undefined));
    assert.equal(await locks.tryAcquire("late", { lease }), null);
    await server.command("LOCK.RELEASE", "late", "another");
    await sleep(600);
    await until(async () => (await server.info("late", "state")) === "free", "the lock is free");
  });

  test(`cut_session_is_taken_over_by_EXTEND_first, ${library.name}`, async () => {
    await server.command("LOCK.ACQUIRE", "attached", "t:1", "PX", String(lease));
    const sent: string[] = [];
    const locks = locksWith((words) => {
      if (/EXTEND|ACQUIRE/.test(words[0] ?? "")) sent.push(words[0] ?? "");
      return sent.length === 2 && words.includes("SESSION") ? "not executed" : undefined;
    });
    const lock = await locks.attach("attached", "t:1", { lease, session: true });
    assert.deepEqual(sent.slice(0, 4), ["LOCK.EXTEND", "LOCK.ACQUIRE", "LOCK.EXTEND", "LOCK.ACQUIRE"]);
    await lock.release();
  });

  test(`random_faults_leave_no_orphan, ${library.name}`, async () => {
    const faults: Fault[] = ["not executed", "executed", "executed late"];
    const locks = locksWith(() => (Math.random() < 0.03 ? faults[Math.floor(Math.random() * 3)] : undefined));
    const names = Array.from({ length: 10 }, (_, n) => `${library.name}:${n}`);
    const inside = new Set<string>();
    const work = async (n: number) => {
      const name = names[n % names.length] as string;
      const signal = AbortSignal.timeout(Math.ceil(Math.random() * 400));
      try {
        await using _lock = await locks.acquire(name, { lease, wait: Math.random() * 400, signal, renew: n % 2 === 0 });
        assert.ok(!inside.has(name), "held by one");
        inside.add(name);
        await sleep(Math.random() * 5);
        inside.delete(name);
      } catch (error) {
        const isExpected = [LockTimeoutError, LockConnectionError, LockLostError].some((type) => error instanceof type);
        if (!isExpected && error !== signal.reason) throw error;
      }
    };
    for (let round = 0; round < 10; round++) await Promise.all(Array.from({ length: 60 }, (_, n) => work(n)));
    for (const name of names) {
      await until(async () => (await server.info(name, "state")) === "free", `${name} is free`);
    }
    await sleep(1_200);
    for (const name of names) {
      assert.equal(await server.info(name, "state"), "free");
      assert.equal(await server.info(name, "waiters"), 0);
    }
  });
}
