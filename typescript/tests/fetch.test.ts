/** `delegatedFetch`, against servers on the loopback address. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import { delegatedFetch, Denied, InvalidInputError } from "credence-agent";

import { agent, decide, proofId, serve, serviceAt } from "./support.js";

const CHARGE = "/v1/accounts/a1/charges?amount=15";
const ARGS = { account: "a1", amount: 15 };
const NOTE = { method: "POST", headers: { "content-type": "application/json" }, body: '{"text":"hello"}' };

async function setUp(answer?: Parameters<typeof serve>[0]) {
  const { origin, received } = await serve(answer);
  const credential = await agent();
  return { origin, received, credential, send: delegatedFetch(serviceAt(origin), credential) };
}

test("a request is sent with the delegation and a proof that a verifier accepts", async () => {
  const { origin, received, send } = await setUp();
  const response = await send(origin + CHARGE, { method: "POST", body: "any", headers: { "x-trace": "1" } });
  assert.equal(await response.text(), "done");
  assert.equal(received.length, 1);
  assert.equal(decide(received[0], "payments.charge", ARGS), "allow");
  assert.equal(received[0]?.body, "any");
  assert.equal(received[0].headers["x-trace"], "1");
});

test("each request has a new proof", async () => {
  const { origin, received, send } = await setUp();
  await Promise.all(Array.from({ length: 20 }, () => send(new Request(origin + CHARGE, { method: "POST" }))));
  assert.equal(new Set(received.map(proofId)).size, 20);
});

test("a body that a rule reads is proven and sent unchanged", async () => {
  const { origin, received, send } = await setUp();
  const body = '{ "text": "hé" }';
  await send(`${origin}/v1/notes`, { ...NOTE, body });
  await send(new Request(`${origin}/v1/notes`, { ...NOTE, body }));
  await send(`${origin}/v1/notes`, { ...NOTE, body: new Blob([body]).stream(), duplex: "half" } as RequestInit);
  assert.equal(received.length, 3);
  for (const one of received) {
    assert.equal(one.body, body);
    assert.equal(decide(one, "notes.write", { text: "hé" }), "allow");
  }
});

test("a request that the service would deny fails before anything is sent", async () => {
  const { origin, received, credential, send } = await setUp();
  const cases: [string, RequestInit, string, string | undefined][] = [
    ["/v1/accounts/a2/charges?amount=15", { method: "POST" }, "argument_not_allowed", "account"],
    ["/v1/accounts/a1/charges?amount=101", { method: "POST" }, "argument_not_allowed", "amount"],
    ["/v1/other", {}, "no_route", undefined],
    ["/v1/notes", { ...NOTE, body: "x".repeat(2 << 20) }, "body_too_large", undefined],
  ];
  for (const [target, init, reason, argument] of cases) {
    await assert.rejects(send(origin + target, init), (error) => {
      assert.ok(error instanceof Denied);
      assert.equal(error.reason, reason);
      assert.equal(error.argument, argument);
      assert.equal(error.problem?.["reason"], reason);
      assert.equal(error.problem["status"], error.status);
      assert.ok(!inspect(error, { depth: 9, showHidden: true }).includes(credential.delegation.text));
      return true;
    });
  }
  assert.equal(received.length, 0);
});

test("a stream that is too long is denied without being read to its end", async () => {
  const { origin, received, send } = await setUp();
  let pulled = 0;
  const endless = new ReadableStream({
    pull(controller) {
      pulled += 1;
      controller.enqueue(new Uint8Array(64 << 10));
    },
  });
  const init = { ...NOTE, body: endless, duplex: "half" } as RequestInit;
  await assert.rejects(send(`${origin}/v1/notes`, init), /body_too_large/);
  assert.ok(pulled < 30);
  assert.equal(received.length, 0);
});

test("a public request, and one to another origin, has no credential", async () => {
  const { origin, received, send } = await setUp();
  const other = await serve();
  await send(`${origin}/healthz`);
  await send(other.origin + CHARGE, { method: "POST" });
  for (const { headers } of [...received, ...other.received]) {
    assert.equal(headers["delegation"], undefined);
    assert.equal(headers["delegation-proof"], undefined);
  }
  assert.equal(other.received.length, 1);
});

test("a credential of the caller is refused", async () => {
  const { origin, received, send } = await setUp();
  for (const name of ["delegation", "Delegation-Proof", "host"]) {
    await assert.rejects(send(origin + CHARGE, { method: "POST", headers: { [name]: "x" } }), InvalidInputError);
  }
  assert.equal(received.length, 0);
});

test("a denial with a nonce is retried once, with a new proof", async () => {
  let asked = 0;
  const { origin, received, send } = await setUp((one, _, response) => {
    asked += 1;
    const isProven = decide(one, "notes.write", { text: "hello" }, "n-1") === "allow";
    if (isProven) response.end("written");
    else response.writeHead(401, { "delegation-nonce": "n-1" }).end();
  });
  const response = await send(`${origin}/v1/notes`, NOTE);
  assert.equal(await response.text(), "written");
  assert.equal(asked, 2);
  assert.notEqual(proofId(received[0]), proofId(received[1]));
  assert.equal(received[1]?.body, NOTE.body);
  // The nonce is known now.
  await send(`${origin}/v1/notes`, NOTE);
  assert.equal(asked, 3);
});

test("a service that always gives a nonce is asked twice, and its denial is returned", async () => {
  const { origin, received, send } = await setUp((_, __, response) => {
    response.writeHead(401, { "delegation-nonce": `n-${String(received.length)}` }).end("denied");
  });
  const response = await send(`${origin}/v1/notes`, NOTE);
  assert.equal(response.status, 401);
  assert.equal(await response.text(), "denied");
  assert.equal(received.length, 2);
});

test("a stream that no rule reads is not sent again", async () => {
  const { origin, received, send } = await setUp((_, __, response) => {
    response.writeHead(401, { "delegation-nonce": "n" }).end();
  });
  const init = { method: "POST", body: new Blob(["stream"]).stream(), duplex: "half" } as RequestInit;
  assert.equal((await send(origin + CHARGE, init)).status, 401);
  assert.equal(received.length, 1);
  assert.equal(received[0]?.body, "stream");
});

test("a redirect inside the origin has a new proof for its own request", async () => {
  const { origin, received, send } = await setUp((one, _, response) => {
    if (one.url === CHARGE) response.writeHead(307, { location: "/v1/accounts/a1/charges?amount=16" }).end();
    else response.end("done");
  });
  const response = await send(origin + CHARGE, { method: "POST", body: "any" });
  assert.equal(await response.text(), "done");
  assert.equal(decide(received[1], "payments.charge", { account: "a1", amount: 16 }), "allow");
  assert.notEqual(proofId(received[0]), proofId(received[1]));
  assert.equal(received[1]?.body, "any");
});

test("a redirect that the delegation does not grant is denied", async () => {
  const { origin, received, send } = await setUp((_, __, response) => {
    response.writeHead(307, { location: "/v1/accounts/a2/charges?amount=1" }).end();
  });
  await assert.rejects(send(origin + CHARGE, { method: "POST" }), Denied);
  assert.equal(received.length, 1);
});

test("a redirect to another origin, and back, carries no credential", async () => {
  let back = "";
  const other = await serve((_, __, response) => {
    response.writeHead(307, { location: back }).end();
  });
  const { origin, received, send } = await setUp((one, _, response) => {
    if (one.url === CHARGE) response.writeHead(307, { location: `${other.origin}/x` }).end();
    else response.end("done");
  });
  back = `${origin}/v1/accounts/a1/charges?amount=16`;
  await send(origin + CHARGE, { method: "POST", headers: { authorization: "Bearer secret", cookie: "a=b" } });
  assert.equal(received[0]?.headers.authorization, "Bearer secret");
  for (const one of [other.received[0], received[1]]) {
    for (const name of ["delegation", "delegation-proof", "authorization", "cookie"]) {
      assert.equal(one?.headers[name], undefined, name);
    }
  }
});

test("a POST becomes a GET as in the Fetch standard, and without its body", async () => {
  const { origin, received, send } = await setUp((one, _, response) => {
    if (one.method === "POST") response.writeHead(303, { location: "/v1/catalog/shoes" }).end();
    else response.end("shoes");
  });
  const response = await send(origin + CHARGE, { method: "POST", body: "any", headers: { "content-type": "text/x" } });
  assert.equal(await response.text(), "shoes");
  assert.equal(received[1]?.method, "GET");
  assert.equal(received[1].body, "");
  assert.equal(received[1].headers["content-type"], undefined);
  // This rule takes the delegation alone.
  assert.ok(received[1].headers["delegation"]);
  assert.equal(received[1].headers["delegation-proof"], undefined);
});

test("the caller's redirect mode is kept, and redirects end", async () => {
  const { origin, received, send } = await setUp((_, __, response) => {
    response.writeHead(307, { location: CHARGE }).end();
  });
  assert.equal((await send(origin + CHARGE, { method: "POST", redirect: "manual" })).status, 307);
  await assert.rejects(send(origin + CHARGE, { method: "POST", redirect: "error" }), TypeError);
  assert.equal(received.length, 2);
  await assert.rejects(send(origin + CHARGE, { method: "POST" }), /more than 20 redirects/);
});

test("a request can be aborted", async () => {
  const { origin, send } = await setUp(() => undefined);
  await assert.rejects(send(origin + CHARGE, { method: "POST", signal: AbortSignal.timeout(50) }), {
    name: "TimeoutError",
  });
});
