import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { readFile } from "node:fs/promises";
import { Delegation, prove } from "credence-agent";

// Here the key is in this process. Call your KMS in `sign` instead.
const key = createPrivateKey({ key: JSON.parse(await readFile("agent.jwk", "utf8")), format: "jwk" });
const signer = {
  algorithm: "Ed25519",
  publicJwk: createPublicKey(key).export({ format: "jwk" }),
  sign: async (bytes) => sign(null, bytes, key),
};

const delegation = Delegation.parse(await readFile("delegation.txt", "utf8"));
const call = { tool: "payments.charge", arguments: { account: "a1", amount: 15 }, audience: process.env.SERVICE };
console.log((await prove(delegation, signer, call)).length > 0);
