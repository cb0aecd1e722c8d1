/** The official MCP client, with servers of both eras of the protocol. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, suite, test } from "node:test";

import { Client, type ClientOptions } from "@modelcontextprotocol/client";
import { NodeStreamableHTTPServerTransport } from "@modelcontextprotocol/node";
import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { Delegation, Denied, PrivateKey } from "credence-agent";
import { delegatedTransport } from "credence-agent/mcp";
import * as z from "zod";

import { decide, mint, nodeHandler, type Received, serviceAt } from "./support.js";

const OPEN = { open: true };
const SESSION_METHODS = {
  initialize: OPEN,
  ping: OPEN,
  "tools/list": OPEN,
  "notifications/initialized": OPEN,
  "server/discover": OPEN,
};

function newServer(): McpServer {
  const server = new McpServer({ name: "weather", version: "1.0.0" });
  const inputSchema = z.object({ city: z.string() });
  server.registerTool("get_forecast", { inputSchema }, ({ city }) => ({
    content: [{ type: "text", text: `Rain in ${city}` }],
  }));
  return server;
}

type Handler = (request: IncomingMessage, response: ServerResponse) => unknown;

/** One session, as in the versions up to 2025-11-25. */
async function sessions(): Promise<Handler> {
  const transport = new NodeStreamableHTTPServerTransport({ sessionIdGenerator: () => crypto.randomUUID() });
  await newServer().connect(transport);
  return (request, response) => transport.handleRequest(request, response);
}

/** No sessions, as in 2026-07-28. */
function stateless(): Promise<Handler> {
  return Promise.resolve(nodeHandler(createMcpHandler(newServer, { legacy: "reject" })));
}

const ERAS: [string, () => Promise<Handler>, ClientOptions, object][] = [
  ["sessions, with a stream", sessions, {}, { GET: OPEN, DELETE: OPEN }],
  ["sessions, without a stream", sessions, {}, {}],
  ["2026-07-28", stateless, { versionNegotiation: { mode: { pin: "2026-07-28" } } }, {}],
];

for (const [era, start, options, methods] of ERAS) {
  suite(era, () => {
    test("each message presents the delegation, and a call that is not granted is not sent", async () => {
      const handler = await start();
      const received: Pick<Received, "method" | "headers">[] = [];
      const server = createServer((request, response) => {
        received.push({ method: request.method ?? "", headers: request.headers });
        handler(request, response);
      }).listen(0, "127.0.0.1");
      await once(server, "listening");
      after(() => {
        server.closeAllConnections();
        server.close();
      });
      const origin = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
      const rule = {
        name: "weather",
        match: { path: "/mcp" },
        mcp: {
          versions: ["2025-06-18", "2025-11-25", "2026-07-28"],
          tools: { prefix: "weather." },
          methods: { ...SESSION_METHODS, ...methods },
        },
        proof: "pop",
      };
      const signer = await PrivateKey.generate();
      const tools = { "weather.get_forecast": { city: { constraint_type: "exact", value: "Oslo" } } };
      const delegation = Delegation.parse(await mint(signer, {}, tools));
      const service = serviceAt(origin, { rules: [rule] });

      const client = new Client({ name: "agent", version: "1.0.0" }, options);
      await client.connect(delegatedTransport(new URL("/mcp", origin), service, { delegation, signer }));
      const { content } = await client.callTool({ name: "get_forecast", arguments: { city: "Oslo" } });
      assert.deepEqual(content, [{ type: "text", text: "Rain in Oslo" }]);
      const before = received.length;
      await assert.rejects(client.callTool({ name: "get_forecast", arguments: { city: "Rome" } }), (error) => {
        assert.ok(error instanceof Denied);
        assert.equal(error.argument, "city");
        assert.equal(error.problem?.["reason"], "argument_not_allowed");
        return true;
      });
      assert.equal(received.length, before);
      await client.close();

      assert.ok(received.every(({ headers }) => headers["delegation"] !== undefined));
      const proven = received.map((one) => decide(one as Received, "weather.get_forecast", { city: "Oslo" }));
      assert.equal(proven.filter((decision) => decision === "allow").length, 1);
      const hasStream = received.some(({ method }) => method === "GET");
      assert.equal(hasStream, "GET" in methods);
    });
  });
}
