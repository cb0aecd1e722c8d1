/** Signatures with an agent's key, wherever it is kept. */

import { base64url } from "jose";

import { InvalidInputError, KeyError } from "./errors.js";
import { agentModule } from "./module.js";

/** A public key as a JWK (RFC 7517). It has no private members. */
export interface PublicJwk {
  /** The key type. */
  readonly kty: "OKP" | "EC";
  /** The curve. */
  readonly crv: "Ed25519" | "P-256" | "secp256k1";
  /** The key, or its x coordinate, in base64url. */
  readonly x: string;
  /** The y coordinate in base64url, for `EC`. */
  readonly y?: string;
}

/** A JWS algorithm: RFC 9864 for `Ed25519`, RFC 7518 for `ES256`, RFC 8812 for `ES256K`. */
export type Algorithm = "Ed25519" | "ES256" | "ES256K";

/**
 * A key that signs for an agent. {@link PrivateKey} is one in memory. Implement this interface for a key in a KMS or HSM.
 */
export interface Signer {
  /** The algorithm of the signatures. */
  readonly algorithm: Algorithm;
  /** The public key. */
  readonly publicJwk: PublicJwk;
  /**
   * Signs these bytes, which are not hashed yet. The signature has 64 bytes, as JWS has it. For ECDSA that is `r`
   * followed by `s` (RFC 7518, section 3.4), not DER.
   */
  sign(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

/**
 * The header and payload of a JWS, made by the Wasm module.
 * @internal
 */
export interface Unsigned {
  readonly header: Readonly<Record<string, unknown>>;
  readonly payload: string;
}

/**
 * Signs a JWS in the compact serialization (RFC 7515, section 7.1).
 *
 * @throws {@link KeyError} The key has another algorithm, or its signature has another length.
 * @internal
 */
export async function signed(unsigned: Unsigned, signer: Signer): Promise<string> {
  if (unsigned.header["alg"] !== signer.algorithm) {
    throw new KeyError(`the key signs with ${signer.algorithm}, but ${String(unsigned.header["alg"])} is needed`);
  }
  const input = `${base64url.encode(JSON.stringify(unsigned.header))}.${base64url.encode(unsigned.payload)}`;
  const signature = await signer.sign(new TextEncoder().encode(input));
  if (signature.length !== SIGNATURE_BYTES) {
    throw new KeyError(
      `the signer returned ${String(signature.length)} bytes instead of ${String(SIGNATURE_BYTES)}; ` +
        "an ECDSA signature must be r followed by s, not DER",
    );
  }
  return `${input}.${base64url.encode(signature)}`;
}

/**
 * The thumbprint of a public key (RFC 7638), with SHA-256, in base64url.
 *
 * @throws {@link KeyError} It is no public key of a known type.
 */
export function thumbprint(jwk: PublicJwk): string {
  try {
    return agentModule.call<{ thumbprint: string }>({ thumbprint: { jwk: publicMembers(jwk) } }).thumbprint;
  } catch (error) {
    if (error instanceof InvalidInputError) throw new KeyError(error.message, { cause: error });
    throw error;
  }
}

/** The members of a JWK that identify the public key. @internal */
export function publicMembers(jwk: PublicJwk): PublicJwk {
  const { kty, crv, x, y } = jwk;
  return y === undefined ? { kty, crv, x } : { kty, crv, x, y };
}

/** Of Ed25519, ES256 and ES256K. */
const SIGNATURE_BYTES = 64;
