/** Where the rules of a service come from, and what they cannot do. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import {
  type Credential,
  Delegation,
  Denied,
  InvalidInputError,
  KeyError,
  PrivateKey,
  RulesError,
  Service,
} from "credence-agent";
import { readService } from "credence-agent/node";
import { decodeJwt } from "jose";

import { agent, AUDIENCE, document, mint, serve } from "./support.js";

const ORIGIN = "https://payments.example";

function request(target: string, more: object = {}) {
  return {
    method: "POST",
    url: new URL(target, ORIGIN),
    headers: [] as [string, string][],
    hasBody: false,
    readBody: () => Promise.resolve(new Uint8Array()),
    ...more,
  };
}

test("published rules are fetched once while they are fresh, and again later", async (context) => {
  const { origin, received } = await serve((_, __, response) => {
    response.setHeader("cache-control", "public, max-age=40");
    response.end(document({ audience: [AUDIENCE] }));
  });
  const { signer, delegation } = await agent();
  const service = await Service.discover(origin, { audience: [AUDIENCE] });
  const charge = {
    ...request("/v1/accounts/a1/charges?amount=15"),
    url: new URL("/v1/accounts/a1/charges?amount=15", origin),
  };
  await Promise.all([1, 2].map(() => service.authorize(charge, { delegation, signer })));
  assert.deepEqual(
    received.map(({ url }) => url),
    ["/.well-known/credence-agent-rules"],
  );
  context.mock.timers.enable({ apis: ["Date"], now: Date.now() + 41_000 });
  await Promise.all([1, 2].map(() => service.authorize(charge, { delegation, signer })));
  assert.equal(received.length, 2);
});

test("known rules count for a day while new ones cannot be had", async (context) => {
  let status = 200;
  const { origin } = await serve((_, __, response) => {
    response.writeHead(status, { "cache-control": "no-store" }).end(document({ audience: [AUDIENCE] }));
  });
  const service = await Service.discover(origin, { audience: [AUDIENCE] });
  const health = { ...request("/healthz"), url: new URL("/healthz", origin), method: "GET" };
  const { signer, delegation } = await agent();
  const authorized = () => service.authorize(health, { delegation, signer });
  status = 503;
  const now = Date.now();
  context.mock.timers.enable({ apis: ["Date"], now: now + 31_000 });
  assert.deepEqual((await authorized()).headers, []);
  context.mock.timers.setTime(now + 86_500_000);
  await assert.rejects(authorized(), RulesError);
});

test("rules are fetched over https only, or from a loopback host", async () => {
  const never: typeof fetch = () => Promise.reject(new Error("sent"));
  await assert.rejects(Service.discover("http://payments.example", { fetch: never }), /not https/);
  await assert.rejects(Service.discover("http://127.0.0.1.payments.example", { fetch: never }), /not https/);
});

test("a redirect of the rules is not followed", async () => {
  const elsewhere = await serve((_, __, response) => response.end(document()));
  const { origin } = await serve((_, __, response) => {
    response.writeHead(302, { location: `${elsewhere.origin}/rules` }).end();
  });
  await assert.rejects(Service.discover(origin, { audience: [AUDIENCE] }), /a redirect, which is not followed/);
  assert.equal(elsewhere.received.length, 0);
});

test("rules that are too large, too late or invalid are refused", async () => {
  const large = await serve((_, __, response) => response.end(" ".repeat((8 << 20) + 1)));
  await assert.rejects(Service.discover(large.origin), /larger than/);
  const late = await serve(() => undefined);
  await assert.rejects(Service.discover(late.origin, { timeoutMs: 100 }), /within 100 ms/);
  const invalid = await serve((_, __, response) => response.end("{}"));
  await assert.rejects(Service.discover(invalid.origin), RulesError);
  const missing = await serve((_, __, response) => response.writeHead(404).end());
  await assert.rejects(Service.discover(missing.origin), /status is 404/);
  const closed = createServer().listen(0);
  await once(closed, "listening");
  const { port } = closed.address() as AddressInfo;
  closed.close();
  for (const host of ["127.0.0.1", "localhost"]) {
    await assert.rejects(Service.discover(`http://${host}:${String(port)}`), /cannot be fetched:.*ECONNREFUSED/);
  }
});

test("rules are read from a file", async () => {
  const path = join(mkdtempSync(join(tmpdir(), "credence-")), "rules.json");
  writeFileSync(path, document());
  assert.equal((await readService(ORIGIN, path)).origin, ORIGIN);
  await assert.rejects(readService(ORIGIN, `${path}.missing`), RulesError);
});

test("an origin has no path", () => {
  for (const origin of [
    "payments.example",
    `${ORIGIN}/v1`,
    `${ORIGIN}?a`,
    "ftp://payments.example",
    "https://u@payments.example",
  ]) {
    assert.throws(() => Service.fromDocument(origin, document()), RulesError);
  }
});

test("a delegation of an issuer that the rules do not name is denied", async () => {
  const signer = await PrivateKey.generate();
  const delegation = Delegation.parse(await mint(signer, { iss: "https://other.example" }));
  const service = Service.fromDocument(ORIGIN, document());
  await assert.rejects(
    service.authorize(request("/v1/accounts/a1/charges?amount=1"), { delegation, signer }),
    (error) => error instanceof Denied && error.reason === "issuer_unknown",
  );
});

test("rules cannot ask for proofs for another service", () => {
  assert.throws(() => Service.fromDocument("https://evil.example", document()), RulesError);
  assert.throws(() => Service.fromDocument(ORIGIN, document(), { audience: ["https://other.example"] }), RulesError);
});

test("of several names in the rules, a proof has the service's own", async () => {
  const { signer, delegation } = await agent();
  const service = Service.fromDocument(ORIGIN, document({ audience: ["https://other.example", AUDIENCE] }));
  const { headers } = await service.authorize(request("/v1/accounts/a1/charges?amount=1"), { delegation, signer });
  const proof = headers.find(([name]) => name === "delegation-proof")?.[1] ?? "";
  assert.equal(decodeJwt(proof)["aat_aud"], AUDIENCE);
});

test("rules cannot obtain a proof for a tool that the delegation does not grant", async () => {
  const { signer, delegation } = await agent();
  const rules = [{ name: "lie", match: { path: "/" }, tool: "payments.refund" }];
  const service = Service.fromDocument(ORIGIN, document({ rules }));
  const authorized = service.authorize(request("/"), { delegation, signer });
  await assert.rejects(authorized, (error) => error instanceof Denied && error.reason === "tool_not_granted");
});

test("a request for another origin, or with a credential, is refused", async () => {
  const { signer, delegation } = await agent();
  const service = Service.fromDocument(ORIGIN, document());
  const elsewhere = request("/healthz", { url: new URL("https://payments.example:8443/healthz") });
  await assert.rejects(service.authorize(elsewhere, { delegation, signer }), InvalidInputError);
  const twice = request("/healthz", { headers: [["Delegation", "x"]] });
  await assert.rejects(service.authorize(twice, { delegation, signer }), InvalidInputError);
});

test("a proof needs the holder's key", async () => {
  const { delegation } = await agent();
  const service = Service.fromDocument(ORIGIN, document());
  const charge = request("/v1/accounts/a1/charges?amount=1");
  await assert.rejects(service.authorize(charge, { delegation }), KeyError);
  await assert.rejects(service.authorize(charge, { delegation, signer: await PrivateKey.generate() }), KeyError);
});

test("an access token is presented with DPoP, where the rule reads some", async () => {
  const signer = await PrivateKey.generate();
  const rules = [
    {
      name: "charge",
      match: { path: "/v1/charge" },
      tool: "payments.charge",
      authorization: { proof: "dpop" },
    },
  ];
  const service = Service.fromDocument(ORIGIN, document({ rules }));
  service.learnNonce(401, (name) => (name === "dpop-nonce" ? "n-1" : null));
  const credential: Credential = { accessToken: "token", signer };
  const { headers } = await service.authorize(request("/v1/charge"), credential);
  const [authorization, dpop] = headers;
  assert.deepEqual(authorization, ["authorization", "DPoP token"]);
  assert.equal(dpop?.[0], "dpop");
  assert.equal(decodeJwt(dpop[1])["htu"], `${ORIGIN}/v1/charge`);
  assert.equal(decodeJwt(dpop[1])["nonce"], "n-1");
});

test("more services than the module keeps open work in turn", async () => {
  const { signer, delegation } = await agent();
  const services = Array.from({ length: 70 }, () => Service.fromDocument(ORIGIN, document()));
  for (const service of [...services, ...services]) {
    const { rule } = await service.authorize(request("/v1/accounts/a1/charges?amount=1"), { delegation, signer });
    assert.equal(rule, "charge");
  }
});
