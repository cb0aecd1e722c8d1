import { readFile } from "node:fs/promises";
import { Client } from "@modelcontextprotocol/client";
import { Delegation, Service } from "credence-agent";
import { delegatedTransport } from "credence-agent/mcp";
import { readKeyFile } from "credence-agent/node";

const service = await Service.discover(process.env.SERVICE);
const delegation = Delegation.parse(await readFile("delegation.txt", "utf8"));
const signer = await readKeyFile("agent.jwk");

const client = new Client({ name: "agent", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
await client.connect(delegatedTransport(new URL("/mcp", service.origin), service, { delegation, signer }));
const { content } = await client.callTool({ name: "get_forecast", arguments: { city: "Oslo" } });
console.log(content[0].text);
await client.close();
