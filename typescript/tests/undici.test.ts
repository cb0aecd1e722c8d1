/** The interceptor, with the requests and the fetch of undici. */

import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test } from "node:test";

import { Denied, InvalidInputError } from "credence-agent";
import { delegationInterceptor } from "credence-agent/undici";
import { Agent, fetch, interceptors, request } from "undici";

import { agent, decide, proofId, serve, serviceAt } from "./support.js";

const CHARGE = "/v1/accounts/a1/charges?amount=15";
const ARGS = { account: "a1", amount: 15 };

async function setUp(answer?: Parameters<typeof serve>[0]) {
  const { origin, received } = await serve(answer);
  const interceptor = delegationInterceptor(serviceAt(origin), await agent());
  return { origin, received, interceptor, dispatcher: new Agent().compose(interceptor) };
}

test("a request and a fetch have proofs that a verifier accepts", async () => {
  const { origin, received, dispatcher } = await setUp();
  const { body } = await request(origin + CHARGE, { method: "POST", dispatcher, headers: ["x-trace", "1"] });
  assert.equal(await body.text(), "done");
  assert.equal((await fetch(origin + CHARGE, { method: "POST", dispatcher })).status, 200);
  const path = "/v1/accounts/a1/charges";
  await (await request(origin + path, { method: "POST", query: { amount: 15 }, dispatcher })).body.dump();
  assert.equal(received.length, 3);
  for (const one of received) {
    assert.equal(one.url, CHARGE);
    assert.equal(decide(one, "payments.charge", ARGS), "allow");
  }
  assert.equal(received[0]?.headers["x-trace"], "1");
});

test("a body that a rule reads is proven and sent unchanged", async () => {
  const { origin, received, dispatcher } = await setUp();
  const text = '{"text":"hello"}';
  const headers = { "content-type": "application/json" };
  for (const body of [text, Buffer.from(text), Readable.from([text])]) {
    await (await request(`${origin}/v1/notes`, { method: "POST", headers, body, dispatcher })).body.dump();
  }
  await fetch(`${origin}/v1/notes`, { method: "POST", headers, body: text, dispatcher });
  assert.equal(received.length, 4);
  for (const one of received) {
    assert.equal(one.body, text);
    assert.equal(decide(one, "notes.write", { text: "hello" }), "allow");
  }
});

test("a request that the service would deny fails before anything is sent", async () => {
  const { origin, received, dispatcher } = await setUp();
  const denied = `${origin}/v1/accounts/a2/charges?amount=15`;
  await assert.rejects(request(denied, { method: "POST", dispatcher }), Denied);
  await assert.rejects(
    fetch(denied, { method: "POST", dispatcher }),
    (error) => (error as Error).cause instanceof Denied,
  );
  const headers = { delegation: "x" };
  await assert.rejects(request(origin + CHARGE, { method: "POST", headers, dispatcher }), InvalidInputError);
  await assert.rejects(
    request(origin + CHARGE, { method: "POST", headers: { host: "x" }, dispatcher }),
    InvalidInputError,
  );
  assert.equal(received.length, 0);
});

test("a denial with a nonce is retried once, with a new proof", async () => {
  const { origin, received, dispatcher } = await setUp((one, _, response) => {
    if (decide(one, "notes.write", { text: "hello" }, "n-1") === "allow") response.end("written");
    else response.writeHead(401, { "delegation-nonce": "n-1" }).end("denied");
  });
  const headers = { "content-type": "application/json" };
  const { statusCode, body } = await request(`${origin}/v1/notes`, {
    method: "POST",
    headers,
    body: '{"text":"hello"}',
    dispatcher,
  });
  assert.equal(statusCode, 200);
  assert.equal(await body.text(), "written");
  assert.equal(received.length, 2);
  assert.notEqual(proofId(received[0]), proofId(received[1]));
});

test("a redirect has a new proof inside the origin, and no credential outside", async () => {
  const other = await serve();
  const { origin, received, interceptor } = await setUp((one, _, response) => {
    const next = one.url === CHARGE ? "/v1/accounts/a1/charges?amount=16" : `${other.origin}/x`;
    response.writeHead(307, { location: next }).end();
  });
  const outside = new Agent().compose(interceptor, interceptors.redirect({ maxRedirections: 5 }));
  await (await request(origin + CHARGE, { method: "POST", dispatcher: outside })).body.dump();
  await fetch(origin + CHARGE, { method: "POST", dispatcher: new Agent().compose(interceptor) });
  assert.equal(received.length, 4);
  assert.equal(decide(received[1], "payments.charge", { account: "a1", amount: 16 }), "allow");
  assert.equal(decide(received[3], "payments.charge", { account: "a1", amount: 16 }), "allow");
  assert.equal(other.received.length, 2);
  for (const { headers } of other.received) {
    assert.equal(headers["delegation"], undefined);
    assert.equal(headers["delegation-proof"], undefined);
  }
});

test("a redirect interceptor below does not carry the credential elsewhere", async () => {
  const other = await serve();
  const { origin, interceptor } = await setUp((_, __, response) => {
    response.writeHead(307, { location: `${other.origin}/x` }).end();
  });
  const dispatcher = new Agent().compose(interceptors.redirect({ maxRedirections: 5 }), interceptor);
  assert.equal((await request(origin + CHARGE, { method: "POST", dispatcher })).statusCode, 307);
  assert.equal(other.received.length, 0);
});

test("a path that URLs write differently is refused", async () => {
  const { origin, received, dispatcher } = await setUp();
  const refused = dispatcher.request({ origin, path: "/v1/accounts/a1/../a1/charges?amount=1", method: "POST" });
  await assert.rejects(refused, InvalidInputError);
  assert.equal(received.length, 0);
});
