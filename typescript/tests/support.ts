/** Shared by the tests: an issuer, a service that records its requests, and its rules. */

import { once } from "node:events";
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { after } from "node:test";

import { type NodeIncomingMessageLike, toNodeHandler } from "@modelcontextprotocol/node";
import type { McpHttpHandler } from "@modelcontextprotocol/server";
import { Delegation, PrivateKey, Service, verify } from "credence-agent";
import { CompactSign, decodeJwt, exportJWK, generateKeyPair } from "jose";

export const ISSUER = "https://id.example.com";
export const AUDIENCE = "https://payments.example";

const issuer = await generateKeyPair("Ed25519");
export const ANCHORS = [{ iss: ISSUER, jwk: await exportJWK(issuer.publicKey) }];

/** The grants of the README's agent. */
export const TOOLS = {
  "payments.charge": {
    account: { constraint_type: "exact", value: "a1" },
    amount: { constraint_type: "range", max: 100 },
  },
  "notes.write": { text: { constraint_type: "wildcard" } },
  "catalog.read": { item: { constraint_type: "wildcard" } },
};

/** A root token for this key, as an issuer signs it. */
export async function mint(holder: PrivateKey, claims: object = {}, tools: object = TOOLS): Promise<string> {
  const now = Math.floor(Date.now() / 1000);
  const payload = {
    iss: ISSUER,
    sub: "ada",
    aud: AUDIENCE,
    jti: crypto.randomUUID(),
    iat: now,
    exp: now + 600,
    del_depth: 0,
    del_max_depth: 2,
    cnf: { jwk: holder.publicJwk },
    authorization_details: [{ type: "attenuating_agent_token", tools }],
    ...claims,
  };
  return new CompactSign(new TextEncoder().encode(JSON.stringify(payload)))
    .setProtectedHeader({ alg: "Ed25519", typ: "aat+jwt" })
    .sign(issuer.privateKey);
}

/** A new key with a delegation for it. */
export async function agent(): Promise<{ signer: PrivateKey; delegation: Delegation }> {
  const signer = await PrivateKey.generate();
  return { signer, delegation: Delegation.parse(await mint(signer)) };
}

export function document(more: object = {}): string {
  return JSON.stringify({
    credence_agent_rules: 1,
    issuers: [ISSUER],
    audience: [AUDIENCE],
    default: "deny",
    rules: [
      {
        name: "charge",
        match: { methods: ["POST"], path: "/v1/accounts/{account}/charges" },
        tool: "payments.charge",
        args: { account: { path: "account" }, amount: { query: "amount", type: "number" } },
        ignore_body: true,
      },
      {
        name: "note",
        match: { methods: ["POST", "PUT"], path: "/v1/notes" },
        tool: "notes.write",
        args: { text: { body: "/text" } },
        nonce: true,
      },
      {
        name: "catalog",
        match: { methods: ["GET"], path: "/v1/catalog/{item}" },
        tool: "catalog.read",
        args: { item: { path: "item" } },
        proof: "none",
      },
      { name: "health", match: { path: "/healthz" }, public: true },
    ],
    ...more,
  });
}

/** A request as a server received it. */
export interface Received {
  method: string;
  url: string;
  headers: IncomingHttpHeaders;
  body: string;
}

/** A server on the loopback address, closed after the tests, that records what it receives. */
export async function serve(
  answer: (received: Received, ...response: Parameters<RequestListener>) => void = (_, __, response) => {
    response.end("done");
  },
): Promise<{ origin: string; received: Received[]; server: Server }> {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const one = {
        method: request.method ?? "",
        url: request.url ?? "",
        headers: request.headers,
        body: Buffer.concat(chunks).toString(),
      };
      received.push(one);
      answer(one, request, response);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${String(port)}`, received, server };
}

/** The service of {@link document} at this origin. */
export function serviceAt(origin: string, more: object = {}): Service {
  return Service.fromDocument(origin, document(more), { audience: [AUDIENCE] });
}

/** Decides a request as the service's filter does, but for the rule, which the test names. */
export function decide(
  received: Received | undefined,
  tool: string,
  args: object,
  nonce?: string,
  audience = AUDIENCE,
): string {
  const verdict = verify({
    id: 1,
    anchors: ANCHORS,
    chain: received?.headers["delegation"] ?? "",
    proof: received?.headers["delegation-proof"] ?? null,
    tool,
    args,
    now: Math.floor(Date.now() / 1000),
    audience: [audience],
    policy: { require_pop_aud: true, nonce: nonce ?? null },
  });
  return verdict.decision === "allow" ? "allow" : `deny at ${String(verdict.step)}: ${String(verdict.reason)}`;
}

/** The id of the proof in a request. */
export function proofId(received: Received | undefined): unknown {
  return decodeJwt(String(received?.headers["delegation-proof"])).jti;
}

/** A handler of `node:http`. The types of MCP's adapter do not know `exactOptionalPropertyTypes`. */
export function nodeHandler(handler: McpHttpHandler): (request: IncomingMessage, response: ServerResponse) => void {
  const handle = toNodeHandler(handler);
  return (request, response) => void handle(request as NodeIncomingMessageLike, response);
}
