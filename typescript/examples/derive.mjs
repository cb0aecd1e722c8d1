import { readFile, writeFile } from "node:fs/promises";
import { Delegation } from "credence-agent";
import { readKeyFile } from "credence-agent/node";

const delegation = Delegation.parse(await readFile("delegation.txt", "utf8"));
const worker = JSON.parse(await readFile("worker.pub", "utf8"));
const narrower = await delegation.derive(await readKeyFile("agent.jwk"), {
  holder: worker,
  tools: {
    "payments.charge": {
      account: { constraint_type: "exact", value: "a1" },
      amount: { constraint_type: "range", max: 20 },
    },
  },
  lifetime: 300,
});
await writeFile("worker-delegation.txt", narrower.text, { mode: 0o600 });
console.log(String(narrower));
