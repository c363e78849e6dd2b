import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { after, suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, LockConnectionError, LockLostError, LockTimeoutError } from "../src/index.js";
import { unhandled, until } from "./support/conditions.js";
import { LIBRARIES } from "./support/libraries.js";
import { ownTime, withLease } from "./support/load.js";
import { freePort, TestServer } from "./support/servers.js";

// Most of the time these tests wait, so the libraries have their turn two at a time.
suite("outages", { concurrency: 2 }, () => {
  for (const library of LIBRARIES) {
    suite(library.name, { concurrency: 4 }, () => {
      after(() => assert.deepEqual(unhandled, []));
      const locksOf = (server: TestServer) => createLocks(library.client(server.port));

      test("absent_server_is_an_error_at_once", async () => {
        const locks = createLocks(library.client(await freePort()));
        const attempt = async () => {
          await assert.rejects(locks.acquire("door", { lease: 1_000, wait: 60_000 }), (error) => {
            assert.ok(error instanceof LockConnectionError);
            assert.match(error.message, /^lock "door": the server cannot be reached: .*ECONNREFUSED/);
            return true;
          });
          await assert.rejects(locks.tryAcquire("door", { lease: 1_000 }), LockConnectionError);
        };
        const took = await ownTime(attempt);
        assert.ok(took < 1_000, `${took} ms`);
      });

      test("retries_without_pause_do_not_stop_the_event_loop", async () => {
        const locks = createLocks(library.client(await freePort()));
        const end = performance.now() + 1_000;
        let attempts = 0;
        while (performance.now() < end) {
          await locks.tryAcquire("door", { lease: 1_000 }).catch(() => attempts++);
        }
        assert.ok(attempts > 0 && attempts < 20, `${attempts} attempts`);
      });

      test("new_first_waiter_survives_a_restart", async () => {
        await using server = await TestServer.start();
        const locks = locksOf(server);
        await locks.acquire("door", { lease: 60_000 });
        const stop = new AbortController();
        const first = locks.acquire("door", { lease: 60_000, signal: stop.signal });
        const second = locks.acquire("door", { lease: 60_000, wait: 20_000 });
        await until(async () => (await server.info("door", "waiters")) === 1, "a waiter");
        await server.stop();
        await sleep(300);
        stop.abort();
        await assert.rejects(first, { name: "AbortError" });
        await sleep(300);
        await server.start();
        await (await second).release();
      });

      test("outage_until_the_end_of_a_wait_is_no_timeout", async () => {
        await withLease(1_000, async (wait) => {
          await using server = await TestServer.start();
          const locks = locksOf(server);
          await locks.acquire("door", { lease: 60_000 });
          const waiting = assert.rejects(locks.acquire("door", { lease: 60_000, wait }), LockConnectionError);
          await Promise.race([waiting, until(async () => (await server.info("door", "waiters")) === 1, "a waiter")]);
          await server.stop();
          await waiting;
        });
      });

      test("abort_ends_a_wait_in_an_outage", async () => {
        await using server = await TestServer.start();
        const locks = locksOf(server);
        await locks.acquire("door", { lease: 60_000 });
        const stop = new AbortController();
        const waiting = locks.acquire("door", { lease: 60_000, signal: stop.signal });
        await until(async () => (await server.info("door", "waiters")) === 1, "a waiter");
        server.signal("SIGSTOP");
        await sleep(100);
        stop.abort();
        const took = await ownTime(() => assert.rejects(waiting, { name: "AbortError" }));
        assert.ok(took < 1_300, `${took} ms`);
        server.signal("SIGCONT");
        await until(async () => (await server.info("door", "waiters")) === 0, "the wait is cancelled");
      });

      test("silent_server_ends_waits_5_s_late_at_most", async () => {
        await using server = await TestServer.start();
        const locks = locksOf(server);
        const lock = await locks.acquire("door", { lease: 60_000 });
        server.signal("SIGSTOP");
        const attempt = () => assert.rejects(locks.tryAcquire("door", { lease: 60_000 }), LockConnectionError);
        const wait = () => assert.rejects(locks.acquire("window", { lease: 60_000, wait: 1_000 }), LockConnectionError);
        const [ofAttempt, ofWait] = await Promise.all([ownTime(attempt), ownTime(wait)]);
        assert.ok(ofAttempt < 5_200 && ofWait < 6_200, `${ofAttempt} ms, ${ofWait} ms`);
        server.signal("SIGCONT");
        await lock.release();
      });

      test("release_in_an_outage_is_done_later", async () => {
        await using server = await TestServer.start();
        const locks = locksOf(server);
        const lock = await locks.acquire("door", { lease: 60_000 });
        server.signal("SIGSTOP");
        const released = lock.release().catch((error) => error);
        await sleep(7_000);
        server.signal("SIGCONT");
        assert.ok([undefined, LockConnectionError].includes((await released)?.constructor));
        await until(async () => (await server.info("door", "state")) === "free", "released");
      });

      test("cuts_leave_no_orphan", async () => {
        await using server = await TestServer.start();
        const locks = locksOf(server);
        let [granted, failed, isRunning] = [0, 0, true];
        const work = async (n: number) => {
          while (isRunning) {
            try {
              await using _lock = await locks.acquire(`door:${n % 5}`, { lease: 600_000, wait: Math.random() * 200 });
              granted++;
              await sleep(Math.random() * 5);
            } catch (error) {
              const isExpected = error instanceof LockTimeoutError || error instanceof LockConnectionError;
              if (!isExpected) throw error;
              failed++;
            }
          }
        };
        const workers = Array.from({ length: 30 }, (_, n) => work(n));
        for (let n = 0; n < 30; n++) {
          await sleep(Math.random() * 100);
          await server.cut();
        }
        isRunning = false;
        await Promise.all(workers);
        assert.ok(granted > 0 && failed > 0, `${granted} granted, ${failed} failed`);
        for (let n = 0; n < 5; n++) {
          await until(async () => (await server.info(`door:${n}`, "state")) === "free", `door:${n} is free`);
        }
      });

      test("session_survives_a_cut", async () => {
        await using server = await TestServer.start();
        const survive = async (lease: number) => {
          await using lock = await locksOf(server).acquire("door", { lease, session: true });
          const { signal } = lock;
          await sleep(100);
          for (let n = 0; n < 5; n++) {
            await server.cut();
            await sleep(500);
          }
          assert.equal(signal.aborted, false);
          assert.equal(await server.info("door", "owner"), lock.token);
          await sleep(lease);
          assert.equal(signal.aborted, false);
        };
        // The grace period is a second, whatever the lease.
        await withLease(2_000, survive, server, 1);
      });

      test("session_without_server_is_lost_in_its_grace_period", async () => {
        await using server = await TestServer.start();
        const lock = await locksOf(server).acquire("door", { lease: 30_000, session: true });
        const lost = once(lock.signal, "abort");
        await sleep(100);
        const took = await ownTime(() => Promise.all([lost, server.stop()]));
        assert.ok(took < 1_100, `${took} ms`);
      });

      test("renewed_lock_is_lost_in_a_restart", async () => {
        await using server = await TestServer.start();
        const lock = await locksOf(server).acquire("door", { lease: 30_000, renew: true });
        const lost = once(lock.signal, "abort");
        await sleep(100);
        await server.stop();
        await server.start();
        await lost;
        assert.ok(lock.signal.reason instanceof LockLostError);
      });

      test("absent_server_is_not_stormed", async () => {
        await using server = await TestServer.start();
        const locks = locksOf(server);
        const names = Array.from({ length: 20 }, (_, n) => `door:${n}`);
        const held = await Promise.all(names.map((name) => locks.acquire(name, { lease: 60_000, renew: true })));
        const waits = names.map((name) => locks.acquire(name, { lease: 60_000 }));
        await sleep(100);
        await server.stop();
        let attempts = 0;
        const stub = createServer((socket) => {
          attempts++;
          socket.destroy();
        }).listen(server.port, "127.0.0.1");
        const began = performance.now();
        await sleep(1_000);
        stub.close();
        await once(stub, "close");
        const rate = attempts / (performance.now() - began);
        assert.ok(rate > 0 && rate < 0.03, `${attempts} attempts`);
        await server.start();
        for (const wait of waits) await (await wait).release();
        await Promise.allSettled(held.map((lock) => lock.release()));
      });
    });
  }
});
