/** The Wasm module, imported. For workers, which do not compile modules themselves. */

import agent from "../agent.wasm";

/** The compiled module. */
export function compile(): WebAssembly.Module {
  return agent;
}
