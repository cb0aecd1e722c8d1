/** A private key in memory. */

import { type CryptoKey, exportJWK, generateKeyPair, importJWK } from "jose";

import { KeyError } from "./errors.js";
import { type PublicJwk, publicMembers, type Signer, thumbprint } from "./signer.js";

/** A private key as a JWK (RFC 7517). `d` is secret. */
export interface PrivateJwk extends PublicJwk {
  /** The private key in base64url. */
  readonly d: string;
}

/** The algorithms of keys in memory. Web Crypto does not have ES256K. */
export type KeyAlgorithm = "Ed25519" | "ES256";

/** How a key is made or read. */
export interface KeyOptions {
  /** Whether {@link PrivateKey.toPrivateJwk} may export it. Default: false. */
  readonly extractable?: boolean;
}

/** A private key that Web Crypto holds. Logging or serializing it shows the public key only. */
export class PrivateKey implements Signer {
  readonly algorithm: KeyAlgorithm;
  readonly publicJwk: PublicJwk;
  readonly #key: CryptoKey;

  private constructor(algorithm: KeyAlgorithm, publicJwk: PublicJwk, key: CryptoKey) {
    this.algorithm = algorithm;
    this.publicJwk = publicJwk;
    this.#key = key;
  }

  /** Makes a new key. Default algorithm: Ed25519. Services accept ES256 only if their configuration lists it. */
  static async generate(options: KeyOptions & { readonly algorithm?: KeyAlgorithm } = {}): Promise<PrivateKey> {
    const { algorithm = "Ed25519", extractable = false } = options;
    const pair = await generateKeyPair(algorithm, { extractable });
    return new PrivateKey(algorithm, publicMembers((await exportJWK(pair.publicKey)) as PublicJwk), pair.privateKey);
  }

  /**
   * Reads a private JWK.
   *
   * @throws {@link KeyError} It is no private JWK of Ed25519 or P-256, or its halves do not belong together.
   */
  static async fromJwk(jwk: PrivateJwk, options: KeyOptions = {}): Promise<PrivateKey> {
    const publicJwk = publicMembers(jwk);
    const algorithm = algorithmOf(publicJwk);
    thumbprint(publicJwk);
    if (typeof jwk.d !== "string") throw new KeyError("the JWK has no private member `d`; it is a public key");
    try {
      const [key, verifier] = await Promise.all([
        importJWK({ ...publicJwk, d: jwk.d }, algorithm, { extractable: options.extractable ?? false }),
        importJWK({ ...publicJwk }, algorithm),
      ]);
      const read = new PrivateKey(algorithm, publicJwk, key);
      const probe = new Uint8Array(1);
      const signature = await read.sign(probe);
      const belongs = await crypto.subtle.verify(PARAMETERS[algorithm], verifier, signature, probe);
      if (belongs) return read;
    } catch {
      // The cause is left out: it may quote the key.
    }
    throw new KeyError(`the JWK is no valid ${algorithm} key, or its private and public halves do not belong together`);
  }

  /** The thumbprint of the public key (RFC 7638), with SHA-256, in base64url. */
  get thumbprint(): string {
    return thumbprint(this.publicJwk);
  }

  /** Signs these bytes. */
  async sign(bytes: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
    return new Uint8Array(await crypto.subtle.sign(PARAMETERS[this.algorithm], this.#key, new Uint8Array(bytes)));
  }

  /**
   * The private JWK, to be stored. Anyone who has it can sign as this agent.
   *
   * @throws {@link KeyError} The key is not extractable.
   */
  async toPrivateJwk(): Promise<PrivateJwk> {
    if (!this.#key.extractable) {
      throw new KeyError("the key is not extractable; generate or read it with `{ extractable: true }`");
    }
    const { d } = await exportJWK(this.#key);
    return { ...this.publicJwk, d: d ?? "" };
  }

  /** Only the public key. */
  toJSON(): PublicJwk {
    return this.publicJwk;
  }

  /** Only the algorithm and the thumbprint. */
  toString(): string {
    return `PrivateKey(${this.algorithm}, ${this.thumbprint})`;
  }
}

function algorithmOf(jwk: PublicJwk): KeyAlgorithm {
  if (jwk.kty === "OKP" && jwk.crv === "Ed25519") return "Ed25519";
  if (jwk.kty === "EC" && jwk.crv === "P-256") return "ES256";
  throw new KeyError("the JWK is no key of Ed25519 or P-256; for another kind, implement `Signer`");
}

/** Web Crypto's names. */
const PARAMETERS = { Ed25519: { name: "Ed25519" }, ES256: { name: "ECDSA", hash: "SHA-256" } } as const;
