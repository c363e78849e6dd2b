// Compiles the package twice, as ECMAScript modules and as CommonJS, each with its types.
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";

process.chdir(new URL("..", import.meta.url).pathname);
rmSync("dist", { recursive: true, force: true });
for (const [folder, type, options] of [
  ["esm", "module", ["--module", "NodeNext"]],
  ["cjs", "commonjs", ["--module", "CommonJS", "--moduleResolution", "Bundler", "--verbatimModuleSyntax", "false"]],
]) {
  execFileSync(
    process.execPath,
    ["node_modules/typescript/bin/tsc", "--project", "tsconfig.build.json", "--outDir", `dist/${folder}`, ...options],
    { stdio: "inherit" },
  );
  writeFileSync(`dist/${folder}/package.json`, `{ "type": "${type}" }\n`);
}
