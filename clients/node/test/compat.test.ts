// What the tests of redlock and redis-semaphore do not try.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Mutex, Semaphore } from "../src/compat/redis-semaphore.js";
import { driverOf } from "../src/drivers/index.js";
import { unhandled } from "./support/conditions.js";
import { faulty } from "./support/faults.js";
import { TestServer } from "./support/servers.js";

let server: TestServer;
before(async () => {
  server = await TestServer.start();
});
after(async () => {
  await server[Symbol.asyncDispose]();
  assert.deepEqual(unhandled, []);
});
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
