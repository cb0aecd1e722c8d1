import { readFileSync } from "node:fs";
import { SignJWT, importJWK } from "jose";

const read = (file) => JSON.parse(readFileSync(file, "utf8"));
const tool = { account: { constraint_type: "exact", value: "a1" }, amount: { constraint_type: "range", max: 100 } };
const claims = { iss: "https://id.example.com", sub: "ada", rev_epoch: 0, aud: "https://payments.example",
  jti: crypto.randomUUID(), del_depth: 0, del_max_depth: 1, cnf: { jwk: read("planner.pub") },
  authorization_details: [{ type: "attenuating_agent_token", tools: { "payments.charge": tool } }] };
const token = await new SignJWT(claims).setProtectedHeader({ alg: "Ed25519", typ: "aat+jwt" })
  .setIssuedAt().setExpirationTime("1h").sign(await importJWK(read("issuer.jwk"), "Ed25519"));
console.log(token);
