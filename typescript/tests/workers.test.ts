/** The example for workers, bundled, in workerd. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";
import { PrivateKey } from "credence-agent";
import { Miniflare } from "miniflare";

import { AUDIENCE, decide, document, mint, serve } from "./support.js";

test("a worker presents a delegation, and a proof that a verifier accepts", async () => {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL("../examples/worker.mjs", import.meta.url))],
    bundle: true,
    format: "esm",
    conditions: ["workerd"],
    loader: { ".wasm": "copy" },
    outdir: "/bundle",
    write: false,
    logLevel: "silent",
  });
  const modules = outputFiles.map(({ path, contents }) => ({
    type: path.endsWith(".wasm") ? ("CompiledWasm" as const) : ("ESModule" as const),
    path,
    contents,
  }));
  modules.sort((one, other) => one.type.localeCompare(other.type)).reverse();

  const { origin, received } = await serve();
  const key = await PrivateKey.generate({ extractable: true });
  const worker = new Miniflare({
    modules,
    modulesRoot: "/bundle",
    compatibilityDate: "2026-04-01",
    bindings: {
      SERVICE: origin,
      // The rules name the service by its origin.
      RULES: document({ audience: [origin, AUDIENCE] }),
      DELEGATION: await mint(key, { aud: [origin] }),
      AGENT_KEY: JSON.stringify(await key.toPrivateJwk()),
    },
  });
  try {
    const response = await worker.dispatchFetch("http://worker/");
    assert.equal(await response.text(), "done");
    assert.equal(decide(received[0], "payments.charge", { account: "a1", amount: 15 }, undefined, origin), "allow");
  } finally {
    await worker.dispose();
  }
});
