import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const PACKAGE = fileURLToPath(new URL("../..", import.meta.url));
/** Programs of other versions of Node.js, which use the package, too. */
const NODES = [process.execPath, ...(process.env.NODES ?? "").split(" ").filter(Boolean)];
const NAMES = [
  "createLocks",
  "glide",
  "LockError",
  "LockLostError",
  "LockQueueFullError",
  "LockTimeoutError",
  "ModuleNeededError",
];

test("package_installs_in_an_empty_project", () => {
  const folder = mkdtempSync(join(tmpdir(), "redis-lock-client-"));
  const npm = (...args: string[]) => execFileSync("npm", [...args, "--silent"], { cwd: folder, encoding: "utf8" });
  try {
    npm("pack", PACKAGE);
    const [archive] = readdirSync(folder);
    writeFileSync(join(folder, "package.json"), "{}");
    npm("install", `./${archive}`);
    assert.deepEqual(
      readdirSync(join(folder, "node_modules")).filter((name) => !name.startsWith(".")),
      ["redis-lock-client"],
    );
    writeFileSync(
      join(folder, "esm.mjs"),
      `import { ${NAMES} } from "redis-lock-client"; import Redlock from "redis-lock-client/redlock";
       import { Mutex } from "redis-lock-client/redis-semaphore"; console.log(typeof createLocks, typeof Redlock, typeof Mutex)`,
    );
    writeFileSync(
      join(folder, "cjs.cjs"),
      `const { ${NAMES} } = require("redis-lock-client"); const { default: Redlock } = require("redis-lock-client/redlock");
       const { Mutex } = require("redis-lock-client/redis-semaphore"); console.log(typeof createLocks, typeof Redlock, typeof Mutex)`,
    );
    // A stack names the lines of the sources.
    for (const type of ["esm", "cjs"]) {
      const map = join(folder, "node_modules/redis-lock-client/dist", type, "hold.js.map");
      assert.match(JSON.parse(readFileSync(map, "utf8")).sourcesContent[0], /state machine/);
    }
    const installed = join(folder, "node_modules/redis-lock-client");
    // The page of a registry has no other files.
    for (const [, link = ""] of readFileSync(join(installed, "README.md"), "utf8").matchAll(/\]\(([^)#]+)\)/g)) {
      assert.match(link, /^https:/);
    }
    const { homepage, name, engines } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
    assert.equal(homepage, `https://www.npmjs.com/package/${name}`);
    // Its AbortSignal.any is used.
    assert.equal(engines.node, ">=20.3");
    assert.ok(readdirSync(join(installed, "examples")).includes("bullmq-worker.ts"));
    for (const node of NODES) {
      for (const file of ["esm.mjs", "cjs.cjs"]) {
        const output = execFileSync(node, [join(folder, file)], { encoding: "utf8" });
        assert.equal(output, "function function function\n", `${node} ${file}`);
      }
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
