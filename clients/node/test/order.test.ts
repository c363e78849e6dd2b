import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, LockTimeoutError } from "../src/index.js";
import { Queue } from "../src/queue.js";
import { until } from "./support/conditions.js";
import { LIBRARIES } from "./support/libraries.js";
import { ownTime } from "./support/load.js";
import { TestServer } from "./support/servers.js";

/** How many tasks of a process want one lock. */
const CROWD = 10_000;

test("queue_of_many_turns_takes_linear_time", async () => {
  /** Returns the microseconds of a turn if half of the waiters leave early, the last ones first. */
  const cost = (count: number) => {
    const [queue, began] = [new Queue(), process.cpuUsage()];
    const turns = Array.from({ length: count }, () => queue.join(false));
    const [first, last] = [turns.slice(0, count / 2), turns.slice(count / 2)];
    for (const turn of [...last.reverse(), ...first]) queue.leave(turn);
    assert.ok(queue.length === 0 && turns.every(({ state }) => state === "left"));
    const { user, system } = process.cpuUsage(began);
    return (user + system) / count;
  };
  cost(4_000);
  const [few, many] = [cost(2_000), cost(16_000)];
  assert.ok(many < 4 * few, `${few} and ${many} us each`);
});

for (const library of LIBRARIES) {
  suite(library.name, () => {
    const server = TestServer.forAll();

    test("waiters_are_served_in_order", async () => {
      const locks = createLocks(library.client(server.port));
      const first = await locks.acquire("order", { lease: 30_000 });
      const order: number[] = [];
      const waiters = Array.from({ length: 20 }, (_, n) =>
        locks.using("order", { lease: 30_000 }, () => {
          order.push(n);
        }),
      );
      await sleep(100);
      await first.release();
      await Promise.all(waiters);
      assert.deepEqual(
        order,
        order.map((_, n) => n),
      );
    });

    test("thousand_tasks_share_one_client", async () => {
      const locks = createLocks(library.client(server.port));
      const held = new Set<string>();
      const fences = new Map<string, number>();
      const work = async (name: string) => {
        await using lock = await locks.acquire(name, { lease: 30_000, wait: 60_000 });
        assert.ok(!held.has(name), "held by one");
        held.add(name);
        const fence = await lock.fence();
        assert.ok(fence > (fences.get(name) ?? 0), "after all others");
        fences.set(name, fence);
        held.delete(name);
      };
      await Promise.all(Array.from({ length: 1000 }, (_, n) => work(`tasks:${n % 10}`)));
      assert.ok((await server.connections()) <= 2);
    });

    test("waits_end_on_time", async () => {
      const locks = createLocks(library.client(server.port));
      await using _lock = await locks.acquire("time", { lease: 30_000 });
      const began = performance.now();
      const wait = () =>
        assert.rejects(locks.acquire("time", { lease: 30_000, wait: 300 }), (error) => {
          assert.ok(performance.now() - began >= 299);
          assert.ok(error instanceof LockTimeoutError);
          assert.equal(error.message, 'lock "time": it was not free within 300 ms');
          assert.match(String(error.stack), /order\.test/);
          return true;
        });
      const took = await ownTime(wait, server, 8);
      assert.ok(took < 500, `${took} ms`);
      await until(async () => (await server.info("time", "waiters")) === 0, "the wait is cancelled");
    });

    test("waits_of_a_crowd_end_on_time_and_send_nothing", async () => {
      const locks = createLocks(library.client(server.port));
      await using _lock = await locks.acquire("ends", { lease: 60_000 });
      const wait = () => locks.acquire("ends", { lease: 60_000, wait: 500 }).catch((error) => error);
      const plain = () =>
        new Promise((_, reject) => setTimeout(reject, 500, new Error("late"))).catch((error) => error);
      /** Returns the milliseconds of the processor that a crowd takes, without what other programs take. */
      const cost = async (one: () => Promise<unknown>) => {
        const began = process.cpuUsage();
        const errors = await Promise.all(Array.from({ length: CROWD }, one));
        const { user, system } = process.cpuUsage(began);
        return { ms: (user + system) / 1_000, errors };
      };
      /** Returns how many times as long a crowd takes as timers and rejected promises alone: the last one ends as late. */
      const ratio = async () => {
        const before = await server.calls();
        const { ms, errors } = await cost(wait);
        assert.ok(errors.every((error) => error instanceof LockTimeoutError));
        assert.doesNotMatch(String((errors[CROWD / 2] as Error).stack), /order\.test/);
        assert.ok((await server.calls()) - before < CROWD / 10);
        return ms / (await cost(plain)).ms;
      };
      const all: number[] = [];
      // Again, because the first crowd also pays for the compiler and for memory.
      while (all.length < 6 && !(Math.min(...all) < 5)) all.push(await ratio());
      assert.ok(Math.min(...all) < 5, `${all} times as long as timers alone`);
    });

    test("crowd_of_one_lock_takes_linear_time", async () => {
      const locks = createLocks(library.client(server.port));
      const crowd = async (count: number) => {
        const began = process.cpuUsage().user;
        const using = () => locks.using("crowd of one", { lease: 60_000 }, () => {});
        await Promise.all(Array.from({ length: count }, using));
        return (process.cpuUsage().user - began) / count;
      };
      await crowd(CROWD / 20);
      const [few, many] = [await crowd(CROWD / 20), await crowd(CROWD / 2)];
      assert.ok(many < 3 * few, `${few} and ${many} us each`);
    });

    test("readers_of_a_process_are_granted_together", async () => {
      const locks = createLocks(library.client(server.port));
      const held = (name: string, count: number, options: { shared?: true; permits?: number }) => async () => {
        let [inside, most] = [0, 0];
        const work = async () => {
          most = Math.max(most, ++inside);
          await until(() => most === count, `${count} inside`);
          inside--;
        };
        await Promise.all(Array.from({ length: count }, () => locks.using(name, { lease: 30_000, ...options }, work)));
      };
      const writer = await locks.acquire("together", { lease: 30_000 });
      const readers = held("together", 60, { shared: true })();
      // One round trip after another would be one queue entry.
      await until(async () => (await server.info("together", "waiters")) === 60, "60 waiters");
      const behind = locks.acquire("together", { lease: 30_000 });
      await writer.release();
      await readers;
      await (await behind).release();
      await held("permits", 25, { permits: 25 })();
    });

    test("shares_under_way_are_64_at_most", async () => {
      const locks = createLocks(library.client(server.port));
      const writer = await locks.acquire("crowd", { lease: 30_000 });
      const readers = Array.from({ length: 100 }, () =>
        locks.using("crowd", { lease: 30_000, shared: true }, () => {}),
      );
      await until(async () => (await server.info("crowd", "waiters")) === 64, "64 waiters");
      await sleep(50);
      assert.equal(await server.info("crowd", "waiters"), 64);
      await writer.release();
      await Promise.all(readers);
    });

    test("try_finds_a_lock_whose_release_is_under_way", async () => {
      const locks = createLocks(library.client(server.port));
      for (let n = 0; n < 20; n++) {
        const lock = await locks.acquire("try", { lease: 30_000 });
        const released = lock.release();
        const next = await locks.tryAcquire("try", { lease: 30_000 });
        assert.ok(next);
        await Promise.all([released, next.release()]);
      }
    });

    test("fallen_lease_goes_to_the_next_waiter", async () => {
      const locks = createLocks(library.client(server.port));
      await locks.acquire("lease", { lease: 200 });
      const next = async () => (await locks.acquire("lease", { lease: 30_000, wait: 60_000 })).release();
      const took = await ownTime(next, server, 8);
      assert.ok(took < 500, `${took} ms`);
    });
  });
}
