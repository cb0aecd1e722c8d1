/** A delegation: what an agent may do, and how to hand on less of it. */

import { now } from "./clock.js";
import { Denied, InvalidInputError, KeyError } from "./errors.js";
import { type Arguments, type Json, jsonValue } from "./json.js";
import { agentModule } from "./module.js";
import { type PublicJwk, publicMembers, signed, type Signer, thumbprint, type Unsigned } from "./signer.js";

/** Constraints of a tool's arguments, by argument: the draft's section 4.3. `{}` allows any arguments. */
export type Constraints = Readonly<Record<string, Json>>;

/** The grant of a derived delegation. It is never more than its parent grants. */
export interface Grant {
  /** The public key of the agent that receives it. */
  readonly holder: PublicJwk;
  /** The granted tools, each with its constraints. */
  readonly tools: Readonly<Record<string, Constraints>>;
  /** The services that may accept it. Default: those that accept the parent. */
  readonly audience?: readonly string[];
  /** Lifetime in seconds. Default: 600. It ends with the parent's at the latest. */
  readonly lifetime?: number;
  /** The greatest depth of tokens derived from it; a root has depth 0. Default: its own depth, so it cannot be handed on. */
  readonly maxDepth?: number;
}

/** The contents of one token of a chain. Nothing here is verified. */
export interface UnverifiedToken {
  /** Always false, so that the claims are not mistaken for a decision. */
  readonly verified: false;
  /** The JWS header. */
  readonly header: Readonly<Record<string, unknown>>;
  /** The claims. */
  readonly claims: Readonly<Record<string, unknown>>;
  /** The token's hash: SHA-256 in base64url (the draft's section 4.6). */
  readonly hash: string;
}

interface Held {
  readonly id: string;
  readonly issued_at: number;
  readonly expires_at: number;
  readonly depth: number;
  readonly depth_left: number;
  readonly tools: readonly string[];
  readonly thumbprint: string | null;
}

/**
 * A chain of tokens (draft-niyikiza-oauth-attenuating-agent-tokens-02), as its holder sees it. Its signatures are not
 * verified: the service does that. Logging or serializing a delegation does not show the tokens.
 */
export class Delegation {
  /** The id of the last token. */
  readonly id: string;
  /** When the last token was issued. */
  readonly issuedAt: Date;
  /** When it expires. */
  readonly expiresAt: Date;
  /** How often it was handed on. */
  readonly depth: number;
  /** How often it may still be handed on. */
  readonly depthLeft: number;
  /** The names of the granted tools, sorted. */
  readonly tools: readonly string[];
  /** The thumbprint (RFC 7638) of the key that proves and derives. */
  readonly holderThumbprint: string | undefined;
  readonly #text: string;

  private constructor(text: string, held: Held) {
    this.#text = text;
    this.id = held.id;
    this.issuedAt = new Date(held.issued_at * 1000);
    this.expiresAt = new Date(held.expires_at * 1000);
    this.depth = held.depth;
    this.depthLeft = held.depth_left;
    this.tools = held.tools;
    this.holderThumbprint = held.thumbprint ?? undefined;
  }

  /**
   * Reads a delegation: tokens joined by `~`, root first. Every check of a verifier is made, except of signatures and
   * issuer.
   *
   * @throws {@link InvalidInputError} A service would deny it, for example because it has expired.
   */
  static parse(text: string): Delegation {
    const trimmed = text.trim();
    return new Delegation(trimmed, agentModule.call<Held>({ hold: { chain: trimmed, now: now() } }));
  }

  /** The tokens joined by `~`: the value of the `delegation` header, secret for rules with `proof: none`. */
  get text(): string {
    return this.#text;
  }

  /** The contents of each token, root first. Unverified. */
  inspect(): readonly UnverifiedToken[] {
    const { tokens } = agentModule.call<{ tokens: Omit<UnverifiedToken, "verified">[] }>({
      inspect: { chain: this.#text },
    });
    return tokens.map((token) => ({ verified: false, ...token }));
  }

  /**
   * Checks that it grants this call.
   *
   * @throws {@link Denied} It does not.
   * @throws {@link InvalidInputError} It has expired, or the arguments are not JSON.
   */
  check(tool: string, args: Arguments = {}): void {
    const written = jsonValue(args, "arguments");
    agentModule.call({ permit: { chain: this.#text, tool, arguments: written, now: now() } });
  }

  /**
   * Whether it grants this call.
   *
   * @throws {@link InvalidInputError} It has expired, or the arguments are not JSON.
   */
  permits(tool: string, args: Arguments = {}): boolean {
    try {
      this.check(tool, args);
      return true;
    } catch (error) {
      if (error instanceof Denied) return false;
      throw error;
    }
  }

  /**
   * Hands on less of it to another agent. Nothing is sent: give the text of the result to that agent.
   *
   * @param signer - The key of this delegation's holder.
   * @throws {@link InvalidInputError} The grant is wider than this delegation, or cannot be handed on.
   * @throws {@link KeyError} The key is not the holder's.
   */
  async derive(signer: Signer, grant: Grant): Promise<Delegation> {
    const time = now();
    const lifetime = grant.lifetime ?? DEFAULT_LIFETIME;
    if (!Number.isSafeInteger(lifetime) || lifetime <= 0) {
      throw new InvalidInputError("lifetime must be a positive whole number of seconds");
    }
    this.requireHolder(signer);
    const unsigned = agentModule.call<Unsigned>({
      derive: {
        chain: this.#text,
        grant: {
          id: crypto.randomUUID(),
          holder: publicMembers(grant.holder),
          audience: grant.audience ?? [],
          tools: jsonValue(grant.tools, "tools"),
          expires_at: Math.min(time + lifetime, this.expiresAt.getTime() / 1000),
          max_depth: grant.maxDepth ?? this.depth + 1,
        },
        now: time,
      },
    });
    return Delegation.parse(`${this.#text}~${await signed(unsigned, signer)}`);
  }

  /**
   * Checks that the key is the holder's.
   *
   * @throws {@link KeyError} It is another key.
   * @internal
   */
  requireHolder(signer: Signer): void {
    const given = thumbprint(signer.publicJwk);
    if (given !== this.holderThumbprint) {
      throw new KeyError(
        `the delegation's holder has the key ${this.holderThumbprint ?? "unknown"}, not ${given}; use the key that ` +
          "the delegation was made for",
      );
    }
  }

  /** The description, without the tokens. */
  toJSON(): Readonly<Record<string, unknown>> {
    return { id: this.id, expiresAt: this.expiresAt.toISOString(), depth: this.depth, tools: this.tools };
  }

  /** The description, without the tokens. */
  toString(): string {
    return `Delegation(${this.id}, until ${this.expiresAt.toISOString()}, ${this.tools.join(", ")})`;
  }
}

/** Seconds. */
const DEFAULT_LIFETIME = 600;
