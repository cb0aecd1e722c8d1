// For other programs' tests: one JSON request a line on standard input, one JSON answer a line on standard output.

import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import { delegatedFetch, Delegation, Denied, PrivateKey, prove, Service, verify } from "credence-agent";

const DO = {
  async derive({ chain, key, holder, tools, audience, lifetime, max_depth: maxDepth }) {
    const signer = await PrivateKey.fromJwk(key);
    const grant = given({ holder, tools, audience: list(audience), lifetime, maxDepth });
    return { ok: (await Delegation.parse(chain).derive(signer, grant)).text };
  },

  async prove({ chain, key, tool, arguments: args, audience, nonce }) {
    const signer = await PrivateKey.fromJwk(key);
    const invocation = given({ tool, arguments: args, audience, nonce });
    return { ok: await prove(Delegation.parse(chain), signer, invocation) };
  },

  verify({ case: line }) {
    const { decision, step } = verify(line);
    return { ok: { decision, step } };
  },

  async request({ url, method, headers, body, chain, key, rules, audience }) {
    const document = readFileSync(rules);
    const service = Service.fromDocument(new URL(url).origin, document, given({ audience: list(audience) }));
    const credential = { delegation: Delegation.parse(chain), signer: await PrivateKey.fromJwk(key) };
    const response = await delegatedFetch(service, credential)(url, given({ method, headers, body }));
    await response.arrayBuffer();
    return { ok: { status: response.status } };
  },
};

function list(audience) {
  return typeof audience === "string" ? [audience] : audience;
}

/** Without members that are null or absent. */
function given(members) {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== null && value !== undefined));
}

async function answer(line) {
  try {
    const { do: name, ...request } = JSON.parse(line);
    if (!Object.hasOwn(DO, name)) return { error: `unknown: ${name}` };
    return await DO[name](request);
  } catch (error) {
    return error instanceof Denied ? { denied: error.reason } : { error: String(error?.cause ?? error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(line)));
}
