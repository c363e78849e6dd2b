import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { type LockOptions, LostLockError, Mutex, Semaphore, TimeoutError } from "../src/compat/redis-semaphore.js";
import { driverOf } from "../src/drivers/index.js";
import { until } from "./support/conditions.js";
import { faulty } from "./support/faults.js";
import { withLease } from "./support/load.js";
import { TestServer } from "./support/servers.js";

const server = TestServer.forAll();
const client = () => new Redis(server.port, { lazyConnect: true });

/** Returns how many tasks of one object were inside at a time, at most. */
async function mostInside(mutex: Mutex): Promise<number> {
  let [inside, most] = [0, 0];
  const task = async () => {
    await mutex.acquire();
    most = Math.max(most, ++inside);
    await sleep(5);
    inside--;
    await mutex.release();
  };
  await Promise.all(Array.from({ length: 12 }, task));
  assert.equal(mutex.isAcquired, false);
  return most;
}

test("mutex_object_excludes_its_own_tasks", async () => {
  assert.equal(await mostInside(new Mutex(client(), "tasks")), 1);
});

test("semaphore_object_releases_all_its_permits", async () => {
  assert.equal(await mostInside(new Semaphore(client(), "tasks", 3)), 3);
  assert.equal(await server.info("semaphore:tasks", "state"), "free");
});

test("late_release_keeps_next_acquisition", async () => {
  let isFaulty = false;
  const fault = ([name]: readonly string[]) => (isFaulty && name === "LOCK.RELEASE" ? "not executed" : undefined);
  const driver = faulty(driverOf(client()), fault, (words) => server.command(...words));
  const mutex = new Mutex(driver, "late");
  await mutex.acquire();
  isFaulty = true;
  await assert.rejects(mutex.release());
  isFaulty = false;
  await server.command("DEL", "mutex:late");
  await mutex.acquire();
  await sleep(1_500);
  assert.equal(mutex.isAcquired, true);
  assert.equal(await server.command("GET", "mutex:late"), mutex.identifier);
  await mutex.release();
});

test("invalid_arguments_are_errors", () => {
  const redis = client();
  // Programs without types pass anything.
  const make = (type: unknown, ...args: unknown[]) => Reflect.construct(type as typeof Mutex, args);
  assert.throws(() => make(Mutex, null, "key"), /client/);
  assert.throws(() => make(Mutex, redis, ""), /key/);
  assert.throws(() => make(Mutex, redis, 1), /key/);
  assert.throws(() => make(Mutex, redis, "key", { identifier: "mine" }), /identifier/);
  assert.throws(() => make(Semaphore, redis, "key", 2, { acquiredExternally: true }), /acquiredExternally/);
  assert.throws(() => make(Semaphore, null, "key", 2), /client/);
  assert.throws(() => make(Semaphore, redis, "", 2), /key/);
  assert.throws(() => make(Semaphore, redis, "key", 0), /limit/);
  assert.throws(() => make(Semaphore, redis, "key", "2"), /limit/);
});

/** Both, with one holder. */
const KINDS = {
  mutex: (key: string, options?: LockOptions, redis = client()) => new Mutex(redis, key, options),
  semaphore: (key: string, options?: LockOptions, redis = client()) => new Semaphore(redis, key, 1, options),
};

for (const [kind, lock] of Object.entries(KINDS)) {
  const state = (key: string) => server.info(`${kind}:${key}`, "state");
  const remove = (key: string) => server.command("DEL", `${kind}:${key}`);

  test(`${kind}_is_acquired_released_and_used_again`, async () => {
    const one = lock("again", { lockTimeout: 30_000 });
    assert.equal(one.isAcquired, false);
    for (let time = 0; time < 3; time++) {
      await one.acquire();
      assert.equal(one.isAcquired, true);
      assert.notEqual(await state("again"), "free");
      await one.release();
      assert.equal(one.isAcquired, false);
      assert.equal(await state("again"), "free");
    }
  });

  test(`${kind}_has_the_texts_of_redis-semaphore`, async () => {
    const errors: LostLockError[] = [];
    const holder = lock("texts", { onLockLost: (error) => void errors.push(error) });
    await holder.acquire();
    const other = lock("texts", { acquireTimeout: 10 });
    await assert.rejects(other.acquire(), { message: `Acquire ${kind} ${kind}:texts timeout`, name: "TimeoutError" });
    await remove("texts");
    await until(() => errors.length > 0, "a loss");
    assert.equal(errors[0]?.message, `Lost ${kind} for key ${kind}:texts`);
    for (const [args, message] of [
      [[null, "key", 2], '"client" is required'],
      [[client(), "", 2], '"key" is required'],
      [[client(), 1, 2], '"key" must be a string'],
    ] as const) {
      assert.throws(() => Reflect.construct(kind === "mutex" ? Mutex : Semaphore, args), { message });
    }
  });

  test(`${kind}_that_is_held_is_a_timeout`, async () => {
    const [holder, other] = [lock("held"), lock("held", { acquireTimeout: 50 })];
    assert.equal(await holder.tryAcquire(), true);
    await assert.rejects(other.acquire(), TimeoutError);
    assert.equal(await other.tryAcquire(), false);
    assert.equal(other.isAcquired, false);
    await holder.release();
    assert.equal(await other.tryAcquire(), true);
    await other.release();
  });

  test(`${kind}_stops_waiting_at_abort`, async () => {
    const holder = lock("abort");
    await holder.acquire();
    const signal = AbortSignal.timeout(50);
    await assert.rejects(lock("abort").acquire(signal), { name: "TimeoutError" });
    assert.equal(signal.aborted, true);
    await holder.release();
    assert.equal(await state("abort"), "free");
  });

  test(`${kind}_is_renewed_unless_its_interval_is_0`, async () => {
    const renew = async (lockTimeout: number) => {
      const one = lock("renewed", { lockTimeout, refreshInterval: 100 });
      await one.acquire();
      await sleep(3 * lockTimeout);
      assert.equal(one.isAcquired, true);
      assert.notEqual(await state("renewed"), "free");
      await one.release();
    };
    await withLease(300, renew, server);
    const other = lock("renewed", { lockTimeout: 300, refreshInterval: 0 });
    await other.acquire();
    await until(() => !other.isAcquired, "the end of the lease");
    // The lease ends here before it ends on the server, which began to count later.
    await until(async () => (await state("renewed")) === "free", "the lock is free");
  });

  test(`${kind}_that_is_lost_calls_its_function`, async () => {
    const errors: LostLockError[] = [];
    const one = lock("lost", {
      onLockLost(error) {
        assert.equal(this.isAcquired, false);
        errors.push(error);
      },
    });
    await one.acquire();
    await remove("lost");
    await until(() => errors.length > 0, "a call");
    assert.ok(errors[0] instanceof LostLockError);
    await one.release();
    const silent = lock("lost");
    await silent.acquire();
    await remove("lost");
    await until(() => !silent.isAcquired, "a loss");
    assert.equal(errors.length, 1);
  });

  test(`${kind}_is_lost_when_its_server_has_forgotten_it`, async () => {
    await using restarted = await TestServer.start();
    const errors: LostLockError[] = [];
    const own = new Redis(restarted.port, { lazyConnect: true });
    const options = { lockTimeout: 3_000, onLockLost: (error: LostLockError) => void errors.push(error) };
    const one = lock("key", options, own);
    await one.acquire();
    await restarted.stop();
    await restarted.start();
    await until(() => errors.length > 0, "a loss");
    assert.equal(one.isAcquired, false);
  });
}

test("semaphore_has_its_limit_of_holders", async () => {
  const all = [1, 2, 3].map(() => new Semaphore(client(), "limit", 2, { acquireTimeout: 50 }));
  const [first, second, third] = all as [Semaphore, Semaphore, Semaphore];
  await first.acquire();
  await second.acquire();
  await assert.rejects(third.acquire(), TimeoutError);
  await first.release();
  await third.acquire();
  await second.release();
  await third.release();
  assert.equal(await server.info("semaphore:limit", "state"), "free");
});
