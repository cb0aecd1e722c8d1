/** The packed package, installed elsewhere. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { copyFileSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));

test("the packed package can be installed, run and type-checked", () => {
  const folder = mkdtempSync(join(tmpdir(), "credence-"));
  const inFolder = { cwd: folder, encoding: "utf8", env: { ...process.env, NODE_NO_WARNINGS: "1" } } as const;
  const packed = execFileSync("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", folder], {
    cwd: root,
  });
  const described = JSON.parse(packed.toString()) as Record<string, Packed> | Packed[];
  const [{ filename, files } = { filename: "", files: [] }] = Object.values(described);
  const paths = files.map(({ path }) => path);
  for (const path of ["README.md", "dist/agent.wasm", "dist/index.js", "dist/index.d.ts", "dist/wasm/workers.js"]) {
    assert.ok(paths.includes(path), path);
  }
  assert.deepEqual(
    paths.filter((path) => !path.startsWith("dist/")),
    ["LICENSE", "README.md", "package.json"],
  );

  writeFileSync(join(folder, "package.json"), '{"private":true,"type":"module"}');
  execFileSync("npm", ["install", "--no-audit", "--no-fund", "--prefer-offline", `./${filename}`], inFolder);
  copyFileSync(join(root, "examples/key.mjs"), join(folder, "key.mjs"));
  assert.match(execFileSync(process.execPath, ["key.mjs"], inFolder), /"kty":"OKP"/);

  const line = '{"id":1,"anchors":[],"chain":["x"],"tool":"t","now":1,"audience":[]}\n';
  const { stdout, status } = spawnSync("npx", ["credence", "verify", "--jsonl"], { ...inFolder, input: line });
  assert.equal(status, 0);
  assert.match(stdout, /^\{"id":1,"decision":"deny"/);

  const program =
    'import { Delegation, PrivateKey } from "credence-agent";\nimport { readKeyFile } from "credence-agent/node";\n' +
    "const key: PrivateKey = await readKeyFile('agent.jwk');\nexport const made = Delegation.parse('').derive(key, { holder: key.publicJwk, tools: {} });\n";
  writeFileSync(join(folder, "program.ts"), program);
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  const options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2023", "--types", "node"];
  const types = ["--typeRoots", join(root, "node_modules/@types"), "--skipLibCheck", "false"];
  execFileSync(process.execPath, [compiler, ...options, ...types, "program.ts"], { ...inFolder, stdio: "pipe" });
});

interface Packed {
  filename: string;
  files: { path: string }[];
}
