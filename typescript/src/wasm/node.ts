/** The Wasm module, read from the package's folder. For Node.js. */

import { readFileSync } from "node:fs";

/** Compiles the module. */
export function compile(): WebAssembly.Module {
  const file = new URL("../agent.wasm", import.meta.url);
  return new WebAssembly.Module(readFileSync(file));
}
