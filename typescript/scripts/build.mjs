// Builds the package into dist: `npm run build`.

import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, existsSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const wasm = join(root, "src", "agent.wasm");

if (!existsSync(wasm)) {
  console.error("src/agent.wasm is missing. Build credence-agent-wasm.wasm and copy it there, then build again.");
  process.exit(1);
}
rmSync(join(root, "dist"), { recursive: true, force: true });
const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
execFileSync(process.execPath, [compiler, "-p", join(root, "tsconfig.build.json")], { stdio: "inherit" });
copyFileSync(wasm, join(root, "dist", "agent.wasm"));
chmodSync(join(root, "dist", "agent.wasm"), 0o644);
chmodSync(join(root, "dist", "cli.js"), 0o755);
copyFileSync(join(root, "..", "LICENSE"), join(root, "LICENSE"));
