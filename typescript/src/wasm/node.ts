/** The Wasm module, read from the package's folder. For Node.js. */

import { readFileSync } from "node:fs";

let compiled: WebAssembly.Module | undefined;

/** The compiled module. */
export function compile(): WebAssembly.Module {
  compiled ??= new WebAssembly.Module(readFileSync(new URL("../agent.wasm", import.meta.url)));
  return compiled;
}
