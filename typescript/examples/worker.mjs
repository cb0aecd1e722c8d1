import { delegatedFetch, Delegation, PrivateKey, Service } from "credence-agent";

export default {
  async fetch(_request, env) {
    const service = Service.fromDocument(env.SERVICE, env.RULES);
    const delegation = Delegation.parse(env.DELEGATION);
    const signer = await PrivateKey.fromJwk(JSON.parse(env.AGENT_KEY));
    const send = delegatedFetch(service, { delegation, signer });
    return send(`${service.origin}/v1/accounts/a1/charges?amount=15`, { method: "POST" });
  },
};
