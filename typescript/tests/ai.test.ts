/** The Vercel AI SDK, with its mock of a language model. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { generateText, stepCountIs, tool } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { InvalidInputError } from "credence-agent";
import { delegatedTool } from "credence-agent/ai";
import * as z from "zod";

import { agent } from "./support.js";

const USAGE = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** A model that calls the tool once with this input. */
function model(input: object): MockLanguageModelV3 {
  let steps = 0;
  return new MockLanguageModelV3({
    doGenerate: () => {
      steps += 1;
      const isFirst = steps === 1;
      return Promise.resolve({
        finishReason: { unified: isFirst ? "tool-calls" : "stop", raw: undefined },
        usage: USAGE,
        warnings: [],
        content: isFirst
          ? [{ type: "tool-call", toolCallId: "1", toolName: "charge", input: JSON.stringify(input) }]
          : [{ type: "text", text: "done" }],
      });
    },
  });
}

async function run(amount: number) {
  const { delegation } = await agent();
  const executed: number[] = [];
  const charge = tool({
    inputSchema: z.object({ amount: z.number() }),
    execute: ({ amount: charged }) => {
      executed.push(charged);
      return `charged ${String(charged)}`;
    },
  });
  const checked = delegatedTool(charge, {
    delegation,
    name: "payments.charge",
    arguments: (input) => ({ account: "a1", ...(input as object) }),
  });
  const result = await generateText({
    model: model({ amount }),
    tools: { charge: checked },
    prompt: "Charge account a1.",
    stopWhen: stepCountIs(3),
  });
  return { executed, parts: result.steps.flatMap(({ content }) => content) };
}

test("a call that the delegation grants is executed", async () => {
  const { executed, parts } = await run(15);
  assert.deepEqual(executed, [15]);
  assert.ok(parts.some((part) => part.type === "tool-result"));
});

test("a call that the delegation does not grant is not executed, and the model learns why", async () => {
  const { executed, parts } = await run(101);
  assert.deepEqual(executed, []);
  const failed = parts.find((part) => part.type === "tool-error");
  assert.match(String(failed?.error), /argument_not_allowed \(amount\)/);
});

test("a tool without `execute` cannot be protected", async () => {
  const { delegation } = await agent();
  const wrapped = () => delegatedTool({ inputSchema: z.object({}) }, { delegation, name: "x" });
  assert.throws(wrapped, InvalidInputError);
});
