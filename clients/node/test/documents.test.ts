import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
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
