// The claims of tokens and proofs (draft-niyikiza-oauth-attenuating-agent-tokens-02), and their hashes.

import { createHash, randomUUID } from "node:crypto";
import { calculateJwkThumbprintUri, decodeJwt } from "jose";

export const TOKEN = "aat+jwt";
export const PROOF = "aat-pop+jwt";

export function root({ issuer, holder, tools }) {
  return { ...grant(holder, tools, 0, 2), iss: issuer };
}

/** Section 6.2: signed by the parent's holder, named by the key's thumbprint, and bound to the parent by its hash. */
export async function derived({ parent, key, holder, tools }) {
  const outer = decodeJwt(parent);
  return {
    ...grant(holder, tools, outer.del_depth + 1, outer.del_max_depth),
    iss: await calculateJwkThumbprintUri(key),
    exp: outer.exp,
    par_hash: tokenHash(parent),
  };
}

/** Section 7: one use of the leaf, by its holder. */
export function proof({ leaf, tool, arguments: hta, audience }) {
  return {
    jti: randomUUID(),
    iat: now(),
    aat_id: decodeJwt(leaf).jti,
    aat_hash: tokenHash(leaf),
    aat_tool: tool,
    aat_aud: audience,
    hta,
  };
}

/** The same token with another `exp` and the same signature. */
export function withMoreTime(token) {
  const [header, , signature] = token.split(".");
  const claims = decodeJwt(token);
  const payload = JSON.stringify({ ...claims, exp: claims.exp + 1 });
  return [header, Buffer.from(payload).toString("base64url"), signature].join(".");
}

export function publicHalf({ d, ...jwk }) {
  return jwk;
}

function grant(holder, tools, depth, maxDepth) {
  return {
    jti: randomUUID(),
    iat: now(),
    exp: now() + 600,
    cnf: { jwk: publicHalf(holder) },
    del_depth: depth,
    del_max_depth: maxDepth,
    authorization_details: [{ type: "attenuating_agent_token", tools }],
  };
}

/** Section 4.6: of the JWS signing input, which is everything before the signature. */
function tokenHash(token) {
  return createHash("sha256").update(token.slice(0, token.lastIndexOf("."))).digest("base64url");
}

function now() {
  return Math.floor(Date.now() / 1000);
}
