/** Proofs for calls that are not made through the hooks of this package. */

import { now } from "./clock.js";
import type { Delegation } from "./delegation.js";
import { type Arguments, jsonValue } from "./json.js";
import { agentModule } from "./module.js";
import { publicMembers, signed, type Signer, type Unsigned } from "./signer.js";

/** One use of a tool. */
export interface Invocation {
  /** The tool. */
  readonly tool: string;
  /** Every argument of the request, with the types of the rule: `15` is not `"15"`. */
  readonly arguments?: Arguments;
  /** The service that receives the proof. Services deny proofs without it, by default. */
  readonly audience?: string;
  /** The service's latest `delegation-nonce`. */
  readonly nonce?: string;
}

/** A request with an access token. */
export interface DpopRequest {
  /** The HTTP method. */
  readonly method: string;
  /** The URL. Query and fragment are left out of the proof. */
  readonly url: string;
  /** The access token that the proof accompanies. */
  readonly accessToken?: string;
  /** The service's latest `dpop-nonce`. */
  readonly nonce?: string;
}

/**
 * Proves one use of a tool (section 7 of the draft). Each call makes a new proof, for one request within seconds.
 *
 * @throws {@link KeyError} The key is not the holder's.
 * @throws {@link InvalidInputError} A service would deny the delegation, or the arguments are not JSON.
 */
export async function prove(delegation: Delegation, signer: Signer, invocation: Invocation): Promise<string> {
  delegation.requireHolder(signer);
  const unsigned = agentModule.call<Unsigned>({
    prove: {
      chain: delegation.text,
      invocation: {
        id: crypto.randomUUID(),
        tool: invocation.tool,
        arguments: jsonValue(invocation.arguments ?? {}, "arguments"),
        audience: invocation.audience ?? null,
        nonce: invocation.nonce ?? null,
      },
      now: now(),
    },
  });
  return signed(unsigned, signer);
}

/**
 * Proves possession of a key for one request (DPoP, RFC 9449, section 4.2).
 *
 * @throws {@link InvalidInputError} The URL is not absolute.
 */
export async function dpopProof(signer: Signer, request: DpopRequest): Promise<string> {
  const unsigned = agentModule.call<Unsigned>({
    dpop: {
      jwk: publicMembers(signer.publicJwk),
      id: crypto.randomUUID(),
      method: request.method,
      url: request.url,
      access_token: request.accessToken ?? null,
      nonce: request.nonce ?? null,
      now: now(),
    },
  });
  return signed(unsigned, signer);
}
