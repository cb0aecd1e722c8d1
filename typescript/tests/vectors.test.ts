/** The draft's published vectors: verdict and failing step. CREDENCE_VECTORS names their folder. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { verify } from "credence-agent";

interface Vectors {
  trust_anchors: unknown;
  params: { audience: string };
  vectors: {
    id: string;
    now: unknown;
    tool: string;
    args: unknown;
    policy: unknown;
    chain_compact: string[];
    pop_compact: string;
    expected: { verdict: "PERMIT" | "DENY"; step: string | null };
  }[];
}

const folder = process.env["CREDENCE_VECTORS"];

test(
  "every published vector has its verdict and step",
  { skip: folder === undefined && "CREDENCE_VECTORS is not set" },
  (t) => {
    const text = readFileSync(join(folder ?? "", "aat-jws-vectors.json"), "utf8");
    // Numbers keep their text: each is a marked string while the file is parsed.
    const marked = text.replace(/"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (found) =>
      found.startsWith('"') ? found : `"\\u0000${found}"`,
    );
    const unmarked = (json: unknown): string => JSON.stringify(json).replace(/"\\u0000([^"]*)"/g, "$1");
    const { trust_anchors: anchors, params, vectors } = JSON.parse(marked) as Vectors;
    for (const { id, now, tool, args, policy, chain_compact: chain, pop_compact: proof, expected } of vectors) {
      const line = { id, anchors, chain, proof, tool, args, now, audience: [params.audience], policy };
      const verdict = verify(unmarked(line));
      assert.equal(verdict.decision, expected.verdict === "PERMIT" ? "allow" : "deny", id);
      if (expected.step !== null)
        assert.ok(expected.step.split("/").includes(verdict.step ?? ""), `${id}: ${String(verdict.step)}`);
      else assert.equal(verdict.step, null, id);
    }
    assert.equal(vectors.length, 115);
    t.diagnostic(`${String(vectors.length)} vectors passed`);
  },
);
