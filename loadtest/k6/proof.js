// Proofs of possession, made as an agent makes them: one for each request, signed by the delegation's holder. A proof
// is valid once and for seconds, so none can be made in advance.
import encoding from "k6/encoding";

import { pool } from "./pool.js";

// k6's own WebCrypto has no Ed25519. If the pool uses it, our build of k6 is needed (scripts/setup-k6.sh); every k6 can
// use a pool of `credence-pool --proof-algorithm ES256`.
const signers = { Ed25519: () => require("./ed25519.js").signer, ES256: () => es256 };
const newSigner = signers[pool.proof_algorithm]();

const HEADER = encoding.b64encode(JSON.stringify({ alg: pool.proof_algorithm, typ: "aat-pop+jwt" }), "rawurl");

// A proof by the holder of `delegation` for the use of the pool's tool with `item`.
export async function prove(delegation, item, issuedAt) {
  const claims = {
    aat_aud: pool.audience,
    aat_hash: delegation.proof.hash,
    aat_id: delegation.proof.id,
    aat_tool: pool.tool,
    hta: { [pool.argument]: item },
    iat: issuedAt,
    jti: crypto.randomUUID(),
  };
  const signed = `${HEADER}.${encoding.b64encode(JSON.stringify(claims), "rawurl")}`;
  const signer = await signerOf(delegation);
  return `${signed}.${await signer(signed)}`;
}

// The keys that this user signed with last.
const known = new Map();
const MOST_KNOWN = 256;

async function signerOf({ proof }) {
  let signer = known.get(proof.id);
  if (!signer) {
    signer = await newSigner(JSON.parse(proof.key));
    if (known.size >= MOST_KNOWN) known.delete(known.keys().next().value);
    known.set(proof.id, signer);
  }
  return signer;
}

async function es256(jwk) {
  const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("jwk", jwk, algorithm, false, ["sign"]);
  return async (text) => encoding.b64encode(await crypto.subtle.sign(algorithm, key, bytes(text)), "rawurl");
}

// For an ASCII text.
function bytes(text) {
  const array = new Uint8Array(text.length);
  for (let place = 0; place < text.length; place++) array[place] = text.charCodeAt(place);
  return array;
}
