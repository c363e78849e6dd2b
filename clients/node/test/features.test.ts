import assert from "node:assert/strict";
import { suite, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createClientPool } from "redis";
import { createLocks, LockConnectionError, LockError, LockLostError, LockTimeoutError } from "../src/index.js";
import { until } from "./support/conditions.js";
import { GLIDE, LIBRARIES, locksOn } from "./support/libraries.js";
import { TestServer } from "./support/servers.js";

for (const library of [...LIBRARIES, GLIDE]) {
  suite(library.name, { concurrency: true }, () => {
    const server = TestServer.forAll();
    const locks = () => createLocks(library.client(server.port));
    const lease = 30_000;

    test("readers_share_and_exclude_writers", async () => {
      const first = await locks().acquire("cache", { lease, shared: true });
      const second = await locks().acquire("cache", { lease, shared: true });
      assert.equal(await locks().tryAcquire("cache", { lease }), null);
      const writer = locks().acquire("cache", { lease });
      await sleep(50);
      await first.release();
      await second.extend(60_000);
      await second.release();
      await (await writer).release();
    });

    test("semaphore_has_so_many_permits", async () => {
      const options = { lease, permits: 2 };
      const [first, second] = [await locks().acquire("printers", options), await locks().acquire("printers", options)];
      assert.equal(await locks().tryAcquire("printers", options), null);
      const third = locks().acquire("printers", options);
      await first.release();
      await Promise.all([second.release(), (await third).release()]);
      assert.equal(await server.info("printers", "state"), "free");
    });

    test("nested_using_enters_again", async () => {
      const options = { lease, reentrant: true };
      await locks().using("cellar", options, async (outer) => {
        await locks().using("cellar", options, async (inner) => {
          assert.equal(inner.token, outer.token);
          await using _third = await locks().acquire("cellar", options);
        });
        assert.equal(await server.info("cellar", "owner"), outer.token);
        assert.equal(await server.info("cellar", "state"), "reentrant");
      });
      assert.equal(await server.info("cellar", "state"), "free");
    });

    test("another_task_does_not_enter", async () => {
      const options = { lease, reentrant: true };
      await using _lock = await locks().acquire("attic", options);
      assert.equal(await locks().tryAcquire("attic", options), null);
    });

    test("entered_lock_that_is_lost_says_so", async () => {
      const options = { lease, reentrant: true };
      const outer = locks().using("stairs", options, async () => {
        await server.command("DEL", "stairs");
        await sleep(library === GLIDE ? 0 : 200);
        await assert.rejects(
          locks().using("stairs", { ...options, lease: 60_000 }, () => {}),
          LockLostError,
        );
      });
      await assert.rejects(outer, LockLostError);
    });

    test("lock_of_another_form_is_not_entered", async () => {
      for (const form of [{ shared: true }, { permits: 2 }, {}]) {
        await locks().using("form", { lease, ...form }, async () => {
          await assert.rejects(locks().acquire("form", { lease, reentrant: true, wait: 50 }), LockTimeoutError);
        });
      }
    });

    test("work_left_behind_acquires_a_lost_lock_anew", async () => {
      const options = { lease, reentrant: true };
      let later: Promise<void> | undefined;
      const outer = locks().using("left", options, async (lock) => {
        // It is never released.
        await locks().acquire("left", options);
        later = outer.catch(() => locks().using("left", options, () => locks().using("left", options, () => {})));
        await server.command("DEL", "left");
        await assert.rejects(lock.extend(lease), LockLostError);
      });
      await assert.rejects(outer, LockLostError);
      await later;
    });

    test("attached_lock_of_any_form_is_held", async () => {
      for (const form of [{}, { reentrant: true }, { shared: true }, { permits: 2 }]) {
        const token = (await locks().acquire("given", { lease, ...form })).detach();
        await using lock = await locks().attach("given", token, { lease });
        const { signal } = lock;
        await sleep(100);
        assert.equal(signal.aborted, false);
        await server.command("DEL", "given");
        await assert.rejects(lock.extend(lease), LockLostError);
      }
      const token = (await locks().acquire("given", { lease, shared: true })).detach();
      await using lock = await locks().attach("given", token, { session: true });
      assert.equal(lock.isHeld, true);
      await assert.rejects(locks().attach("given", "other"), LockLostError);
    });

    test("several_are_all_held_or_none", async () => {
      const first = await locks().acquire("several:b", { lease: 3_000 });
      await assert.rejects(
        locks().several(["several:b", "several:a"], { lease: 300, wait: 9_000 }),
        (error) => error instanceof LockLostError && error.lock === "several:a",
      );
      await assert.rejects(first.release(), LockLostError);
      assert.equal(await server.info("several:b", "state"), "free");
    });

    test("fencing_tokens_rise", async () => {
      const tokens: number[] = [];
      for (let n = 0; n < 3; n++)
        await locks().using("fenced", { lease }, async (lock) => tokens.push(await lock.fence()));
      assert.deepEqual(tokens, [...new Set(tokens)].sort());
      assert.equal(await server.command("EXISTS", "{fenced}:fence"), 1);
    });

    test("release_is_idempotent", async () => {
      const lock = await locks().acquire("twice", { lease });
      await Promise.all([lock.release(), lock.release()]);
      await using _next = await locks().acquire("twice", { lease });
      await lock.release();
      assert.equal(await server.info("twice", "state"), "mutex");
    });

    test("expired_holder_takes_nothing_from_the_next", async () => {
      const first = await locks().acquire("expired", { lease: 50 });
      await using _second = await locks().acquire("expired", { lease });
      await assert.rejects(first.release(), LockLostError);
      assert.equal(await server.info("expired", "state"), "mutex");
    });

    test("names_of_any_text_work", async () => {
      for (const name of ["with space", "a}b", "{tag}x", "ü🔒", "line\nbreak"]) {
        const first = await locks().acquire(name, { lease });
        const second = locks().acquire(name, { lease, wait: 5_000 });
        await first.release();
        await (await second).release();
      }
    });
  });
}

suite("any library", () => {
  const server = TestServer.forAll();

  test("wrong_arguments_are_errors_before_anything_is_sent", async () => {
    const locks = locksOn(server.port);
    const wrong: [unknown, unknown][] = [
      ["", {}],
      ...[0, 1.5, Number.NaN, Number.POSITIVE_INFINITY].map((lease): [unknown, unknown] => ["door", { lease }]),
      ...[{ wait: -1 }, { wait: Number.NaN }, { permits: 0 }, { maxWaiters: 0 }, { label: "with space" }].map(
        (options): [unknown, unknown] => ["door", options],
      ),
      ["door", { lease: 99, session: true }],
    ];
    const other: [unknown, unknown][] = [
      [undefined, {}],
      [7, {}],
      ["door", null],
      ["door", 1_000],
      ["door", { lease: "1000" }],
      ["door", { wait: "1" }],
      ["door", { signal: {} }],
      ["door", { reentrant: true, shared: true }],
      ["door", { session: true, renew: true }],
    ];
    const acquire = (args: [unknown, unknown]) => locks.acquire(...(args as Parameters<typeof locks.acquire>));
    for (const args of wrong) await assert.rejects(acquire(args), RangeError, JSON.stringify(args));
    for (const args of other) await assert.rejects(acquire(args), TypeError, JSON.stringify(args));
    const several = (...args: unknown[]) => locks.several(...(args as Parameters<typeof locks.several>));
    for (const args of [[[]], [["a", "a"]], [[""]], [["a"], { wait: -1 }]])
      await assert.rejects(several(...args), RangeError, JSON.stringify(args));
    for (const args of [["abc"], [[1]], [["a"], null], [["a"], { wait: "3000" }]])
      await assert.rejects(several(...args), /^TypeError: (a lock|lock "a"|several)/, JSON.stringify(args));
    await assert.rejects(locks.using("door", {}, undefined as never), TypeError);
    assert.equal(await server.connections(), 0);
    assert.throws(() => createLocks({} as never), TypeError);
  });

  test("clients_that_cannot_be_used_are_named", () => {
    assert.throws(
      () => createLocks(createClientPool() as never),
      /^TypeError: .*not a pool: give it a client of createClient/,
    );
    const ofNodeRedis4 = { sendCommand() {}, sSubscribe() {}, executeIsolated() {}, disconnect() {} };
    assert.throws(() => createLocks(ofNodeRedis4 as never), /^TypeError: node-redis 4 is too old/);
    assert.throws(() => createLocks({ keyData: new Map(), duplicate() {} } as never), /^TypeError: ioredis-mock/);
    for (const none of [undefined, null, "redis://"]) assert.throws(() => createLocks(none as never), TypeError);
  });

  test("wrong_password_is_said", async () => {
    await server.command("ACL", "SETUSER", "guarded", "on", ">secret", "~*", "&*", "+@all");
    for (const library of LIBRARIES) {
      const attempt = createLocks(library.client(server.port, "guarded:wrong@")).acquire("door", { lease: 1_000 });
      await assert.rejects(attempt, (error) => {
        assert.ok(error instanceof LockConnectionError, `${library.name}: ${error}`);
        assert.match(error.message, /^lock "door": the server refuses the user or the password: WRONGPASS/);
        return true;
      });
    }
  });

  test("wrong_type_is_an_error_of_the_lock", async () => {
    await server.command("LPUSH", "list", "x");
    await assert.rejects(locksOn(server.port).acquire("list", { lease: 1_000, wait: 5_000 }), (error) => {
      assert.ok(error instanceof LockError && !(error instanceof LockTimeoutError));
      assert.match(error.message, /^lock "list": WRONGTYPE/);
      return true;
    });
  });

  test("clients_with_one_address_share_a_connection", async () => {
    for (let n = 0; n < 20; n++) await locksOn(server.port).using(`shared:${n}`, { lease: 1_000 }, () => {});
    assert.equal(await server.connections(), 1);
  });

  test("idle_connection_is_closed_and_opened_again", async () => {
    await using server = await TestServer.start();
    await using busy = await TestServer.start();
    const locks = locksOn(server.port);
    await locks.using("idle", { lease: 1_000 }, () => {});
    await using _held = await locksOn(busy.port).acquire("held", { lease: 60_000, renew: true });
    await sleep(9_000);
    await until(async () => (await server.connections()) === 0, "no connection");
    assert.equal(await busy.connections(), 1);
    await locks.using("idle", { lease: 1_000 }, () => {});
  });

  test("key_prefix_of_the_client_applies", async () => {
    const { createClient } = await import("redis");
    const { Redis } = await import("ioredis");
    const byNodeRedis = createClient({ url: server.url, keyPrefix: "app:" }).on("error", () => {});
    const byIoredis = new Redis(server.port, { lazyConnect: true, keyPrefix: "app:" });
    for (const client of [byNodeRedis, byIoredis]) {
      await using lock = await createLocks(client).acquire("door", { lease: 1_000 });
      assert.equal(await server.info("app:door", "owner"), lock.token);
    }
  });
});
