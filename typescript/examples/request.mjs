import { readFile } from "node:fs/promises";
import { delegatedFetch, Delegation, Denied, Service } from "credence-agent";
import { readKeyFile } from "credence-agent/node";

const service = await Service.discover(process.env.SERVICE);
const delegation = Delegation.parse(await readFile("delegation.txt", "utf8"));
const signer = await readKeyFile("agent.jwk");
const send = delegatedFetch(service, { delegation, signer });

for (const amount of [15, 500]) {
  try {
    const url = `${service.origin}/v1/accounts/a1/charges?amount=${amount}`;
    const response = await send(url, { method: "POST" });
    console.log(amount, response.status);
  } catch (error) {
    if (!(error instanceof Denied)) throw error;
    console.log(amount, error.reason, error.argument);
  }
}
