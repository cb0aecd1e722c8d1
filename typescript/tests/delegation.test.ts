import assert from "node:assert/strict";
import { test } from "node:test";

import { Delegation, Denied, dpopProof, InvalidInputError, KeyError, PrivateKey, prove, verify } from "credence-agent";
import { decodeJwt, decodeProtectedHeader, type JWK, jwtVerify } from "jose";

import { agent, ANCHORS, AUDIENCE, mint } from "./support.js";

const tool = "payments.charge";
const narrower = {
  [tool]: { account: { constraint_type: "exact", value: "a1" }, amount: { constraint_type: "range", max: 20 } },
};

function verdict(delegation: Delegation, proof: string, args: object, policy: object = {}): string {
  const now = Math.floor(Date.now() / 1000);
  const { decision, step } = verify({
    id: 1,
    anchors: ANCHORS,
    chain: delegation.text,
    proof,
    tool,
    args,
    now,
    audience: [AUDIENCE],
    policy,
  });
  return step === null ? decision : `${decision} at ${step}`;
}

test("a delegation says what its holder may do", async () => {
  const { signer, delegation } = await agent();
  assert.deepEqual(delegation.tools, ["catalog.read", "notes.write", tool]);
  assert.equal(delegation.depth, 0);
  assert.equal(delegation.depthLeft, 2);
  assert.equal(delegation.holderThumbprint, signer.thumbprint);
  assert.equal(delegation.expiresAt.getTime() - delegation.issuedAt.getTime(), 600_000);
  const [token] = delegation.inspect();
  assert.equal(token?.verified, false);
  assert.equal(token.claims["sub"], "ada");
  assert.equal(token.header["typ"], "aat+jwt");
});

test("a delegation permits what it grants, and a denial names the argument or the tool", async () => {
  const { delegation } = await agent();
  assert.ok(delegation.permits(tool, { account: "a1", amount: 15 }));
  assert.ok(!delegation.permits(tool, { account: "a1", amount: 101 }));
  assert.throws(
    () => {
      delegation.check(tool, { account: "a2", amount: 1 });
    },
    (error) =>
      error instanceof Denied &&
      error.reason === "argument_not_allowed" &&
      error.argument === "account" &&
      error.status === 403,
  );
  assert.throws(
    () => {
      delegation.check("payments.refund");
    },
    (error) => error instanceof Denied && error.reason === "tool_not_granted" && error.argument === "payments.refund",
  );
});

test("arguments that JSON would change are refused", async () => {
  const { delegation } = await agent();
  for (const amount of [Number.NaN, Number.POSITIVE_INFINITY, 1n]) {
    assert.throws(() => delegation.permits(tool, { account: "a1", amount }), InvalidInputError);
  }
});

test("a delegation that a service would deny is refused when it is read", async () => {
  const key = await PrivateKey.generate();
  assert.throws(() => Delegation.parse("hello"), InvalidInputError);
  const past = Math.floor(Date.now() / 1000) - 1000;
  const expired = await mint(key, { iat: past, exp: past + 10 });
  assert.throws(() => Delegation.parse(expired), InvalidInputError);
});

test("a derived delegation grants less, and a verifier accepts it with the new holder's proof", async () => {
  const { signer, delegation } = await agent();
  const worker = await PrivateKey.generate();
  const derived = await delegation.derive(signer, { holder: worker.publicJwk, tools: narrower, lifetime: 60 });
  assert.equal(derived.depth, 1);
  assert.equal(derived.depthLeft, 0);
  assert.ok(derived.expiresAt < delegation.expiresAt);
  const args = { account: "a1", amount: 15 };
  const proof = await prove(derived, worker, { tool, arguments: args, audience: AUDIENCE });
  assert.equal(verdict(derived, proof, args), "allow");
  assert.equal(verdict(derived, proof, { account: "a1", amount: 16 }).slice(0, 7), "deny at");
  const tooMuch = { account: "a1", amount: 21 };
  const second = await prove(derived, worker, { tool, arguments: tooMuch, audience: AUDIENCE });
  assert.equal(verdict(derived, second, tooMuch), "deny at 6b");
  assert.equal(verdict(delegation, proof, args).slice(0, 7), "deny at");
});

test("a derived delegation never grants more than its parent, nor outlives it", async () => {
  const { signer, delegation } = await agent();
  const holder = (await PrivateKey.generate()).publicJwk;
  const wider = { [tool]: { ...narrower[tool], amount: { constraint_type: "range", max: 101 } } };
  await assert.rejects(delegation.derive(signer, { holder, tools: wider }), InvalidInputError);
  await assert.rejects(delegation.derive(signer, { holder, tools: { other: {} } }), InvalidInputError);
  await assert.rejects(delegation.derive(signer, { holder, tools: narrower, maxDepth: 3 }), InvalidInputError);
  await assert.rejects(delegation.derive(signer, { holder, tools: narrower, lifetime: 0 }), InvalidInputError);
  const long = await delegation.derive(signer, { holder, tools: narrower, lifetime: 86_400 });
  assert.equal(long.expiresAt.getTime(), delegation.expiresAt.getTime());
});

test("only the holder's key derives and proves", async () => {
  const { delegation } = await agent();
  const other = await PrivateKey.generate();
  await assert.rejects(delegation.derive(other, { holder: other.publicJwk, tools: narrower }), KeyError);
  await assert.rejects(prove(delegation, other, { tool }), KeyError);
});

test("a proof has a new id each time, and the nonce", async () => {
  const { signer, delegation } = await agent();
  const args = { account: "a1", amount: 15 };
  const use = { tool, arguments: args, audience: AUDIENCE, nonce: "n-1" };
  const [one, two] = [await prove(delegation, signer, use), await prove(delegation, signer, use)];
  assert.notEqual(decodeJwt(one).jti, decodeJwt(two).jti);
  assert.deepEqual(decodeProtectedHeader(one), { alg: "Ed25519", typ: "aat-pop+jwt" });
  assert.equal(verdict(delegation, one, args, { nonce: "n-1" }), "allow");
  assert.equal(verdict(delegation, one, args, { nonce: "n-2" }), "deny at 7h");
});

test("a DPoP proof is one for its request", async () => {
  const signer = await PrivateKey.generate({ algorithm: "ES256" });
  const proof = await dpopProof(signer, { method: "POST", url: "https://a.example/b?c", accessToken: "t", nonce: "n" });
  const { payload, protectedHeader } = await jwtVerify(proof, signer.publicJwk as JWK, { typ: "dpop+jwt" });
  assert.deepEqual(protectedHeader.jwk, signer.publicJwk);
  assert.equal(payload["htm"], "POST");
  assert.equal(payload["htu"], "https://a.example/b");
  assert.equal(payload["nonce"], "n");
  assert.equal(typeof payload["ath"], "string");
});
