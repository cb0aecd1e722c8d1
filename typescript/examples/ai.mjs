import { tool } from "ai";
import { delegatedFetch } from "credence-agent";
import { delegatedTool } from "credence-agent/ai";
import { z } from "zod";

/** A tool for `generateText` and `streamText`. */
export function chargeTool(service, { delegation, signer }) {
  const send = delegatedFetch(service, { delegation, signer });
  const charge = tool({
    description: "Charge an account.",
    inputSchema: z.object({ account: z.string(), amount: z.number() }),
    execute: async ({ account, amount }) => {
      const url = `${service.origin}/v1/accounts/${encodeURIComponent(account)}/charges?amount=${amount}`;
      return (await send(url, { method: "POST" })).status;
    },
  });
  return delegatedTool(charge, { delegation, name: "payments.charge" });
}
