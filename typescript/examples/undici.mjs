import { readFile } from "node:fs/promises";
import { Delegation, Service } from "credence-agent";
import { readKeyFile } from "credence-agent/node";
import { delegationInterceptor } from "credence-agent/undici";
import { Agent, request } from "undici";

const service = await Service.discover(process.env.SERVICE);
const delegation = Delegation.parse(await readFile("delegation.txt", "utf8"));
const signer = await readKeyFile("agent.jwk");
const dispatcher = new Agent().compose(delegationInterceptor(service, { delegation, signer }));

const url = `${service.origin}/v1/accounts/a1/charges?amount=15`;
const { statusCode } = await request(url, { method: "POST", dispatcher });
console.log(statusCode);
