import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { createLocks } from "../src/index.js";
import { until } from "./support/conditions.js";
import { LIBRARIES } from "./support/libraries.js";
import { ownTime } from "./support/load.js";
import { TestServer } from "./support/servers.js";

const PACKAGE = fileURLToPath(new URL("../..", import.meta.url));

test("programs_of_the_readme_run", async () => {
  await using server = await TestServer.start();
  const blocks = readFileSync(`${PACKAGE}/README.md`, "utf8").matchAll(/^```js\n(.*?)^```/gms);
  const program = [...blocks].map(([, text = ""]) =>
    text.replace("createClient()", `createClient({ url: "${server.url}" })`),
  );
  const file = `${PACKAGE}/build/readme.mjs`;
  writeFileSync(file, program.join("\n"));
  const output = execFileSync(process.execPath, [file], { encoding: "utf8" });
  assert.match(output, /^the door is ours; lost: false\nwrite with token \d+\n$/);
  rmSync(file);
});

test("rights_of_the_readme_are_enough", async () => {
  await using server = await TestServer.start();
  const rights = /^ {4}(&.+)$/m.exec(readFileSync(`${PACKAGE}/README.md`, "utf8"))?.[1]?.split(" ") ?? [];
  const commands = "acquire reenter share release extend".split(" ").map((name) => `+lock.${name}`);
  const ofIoredis = ["+client|id", "+subscribe", "&__redis__:invalidate"];
  await server.command("ACL", "SETUSER", "app", "on", ">secret", "~*", "-@all", ...commands, ...rights, ...ofIoredis);
  const warnings: unknown[] = [];
  const { warn } = console;
  console.warn = (...texts) => warnings.push(texts);
  process.on("warning", (warning) => warnings.push(warning));
  for (const library of LIBRARIES) {
    const locks = createLocks(library.client(server.port, "app:secret@"));
    for (const options of [{}, { reentrant: true }, { shared: true }]) {
      const holder = await locks.acquire("door", { lease: 60_000 });
      const waiting = locks.acquire("door", { lease: 60_000, ...options });
      await until(async () => (await server.info("door", "waiters")) === 1, `${library.name}: a waiter`);
      await holder.release();
      const lost = once((await waiting).signal, "abort");
      await until(() => server.isTracking(), "the lock is watched");
      const took = await ownTime(() => Promise.all([lost, server.command("DEL", "door")]), server);
      assert.ok(took < 50, `${library.name}: ${took} ms`);
    }
  }
  console.warn = warn;
  assert.deepEqual(warnings, []);
  assert.deepEqual(await server.command("ACL", "LOG"), []);
});
