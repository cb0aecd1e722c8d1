// Proofs of possession, signed by this process: the credence program would take too long for each request.

import { createHash, createPrivateKey, randomUUID, sign } from 'node:crypto';
import { AUDIENCE } from '../credence.mjs';

const encoded = (text) => Buffer.from(text).toString('base64url');
const HEADER = encoded('{"alg":"Ed25519","typ":"aat-pop+jwt"}');

/** Signs with the private key in this JWK. */
export function prover(jwk) {
  const key = createPrivateKey({ key: jwk, format: 'jwk' });
  /** A proof with this delegation for a tool and arguments, which are a JSON text. */
  return ({ id, chain }, { tool, args }) => {
    const leaf = chain.split('~').at(-1);
    const hash = createHash('sha256').update(leaf.slice(0, leaf.lastIndexOf('.'))).digest('base64url');
    const iat = Math.floor(Date.now() / 1000);
    const claims = { jti: randomUUID(), iat, aat_id: id, aat_hash: hash, aat_tool: tool, aat_aud: AUDIENCE };
    const signed = `${HEADER}.${encoded(`${JSON.stringify(claims).slice(0, -1)},"hta":${args}}`)}`;
    return `${signed}.${sign(null, Buffer.from(signed), key).toString('base64url')}`;
  };
}
