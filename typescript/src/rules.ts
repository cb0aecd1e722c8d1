/** The rules of a service, opened in the Wasm module. */

import { now } from "./clock.js";
import { InvalidInputError, RulesError } from "./errors.js";
import { agentModule } from "./module.js";
import type { PublicJwk, Unsigned } from "./signer.js";

/** A request, as the service's proxy gets it. */
export interface WireRequest {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  /** Names and values in the order of sending. */
  readonly headers: readonly (readonly [string, string])[];
  readonly hasBody: boolean;
}

/** A credential, as the Wasm module takes it. */
export type WireCredential =
  | { readonly delegation: string }
  | { readonly access_token: { readonly token: string; readonly jwk: PublicJwk | null } };

/** The credential and proof for one request. */
export interface Presented {
  /** The rule; `null` if the request needs nothing. */
  readonly rule: string | null;
  readonly tool: string | null;
  readonly arguments: Readonly<Record<string, unknown>> | null;
  readonly headers: readonly (readonly [string, string])[];
  readonly possession: "signed" | "certificate" | "none" | null;
  readonly needs_nonce: boolean;
  readonly proof: (Unsigned & { readonly name: string }) | null;
}

interface Opened {
  readonly service: number;
  readonly generation: number;
}

/** The rules of one service. */
export class Rules {
  readonly #origin: string;
  readonly #audience: readonly string[];
  readonly #document: Uint8Array;

  /**
   * Reads the document that `credence config describe --for-agents` makes.
   *
   * @param audience - The names that proofs may be for. Empty: names at the origin.
   * @throws {@link RulesError} The document is invalid, or asks for proofs for other services.
   */
  constructor(origin: string, audience: readonly string[], document: Uint8Array) {
    this.#origin = origin;
    this.#audience = audience;
    this.#document = document;
    this.#opened();
  }

  /** Whether {@link Rules.present} needs the body. Throws `Denied` if the request would be denied. */
  readsBody(request: WireRequest): boolean {
    const operation = { service: this.#opened(), request: written(request) };
    return agentModule.call<{ reads_body: boolean }>({ reads_body: operation }).reads_body;
  }

  /** The credential for the request, with a new proof. Throws `Denied` if the request would be denied. */
  present(request: WireRequest, body: Uint8Array, credential: WireCredential, nonce: string | undefined): Presented {
    const present = {
      service: this.#opened(),
      request: written(request),
      credential,
      id: crypto.randomUUID(),
      nonce: nonce ?? null,
      now: now(),
    };
    return agentModule.call<Presented>({ present }, body);
  }

  /** The module's number for these rules. Opens them again if the module restarted or others took their place. */
  #opened(): number {
    const known = opened.get(this);
    opened.delete(this);
    const isOpen = known?.generation === agentModule.generation;
    const current = isOpen ? known : this.#open();
    opened.set(this, current);
    return current.service;
  }

  #open(): Opened {
    const [oldest] = opened;
    if (oldest !== undefined && opened.size >= MAX_OPEN) {
      opened.delete(oldest[0]);
      const { service, generation } = oldest[1];
      if (generation === agentModule.generation) agentModule.call({ close: { service } });
    }
    try {
      const operation = { open: { origin: this.#origin, audience: this.#audience } };
      const { service } = agentModule.call<{ service: number }>(operation, this.#document);
      return { service, generation: agentModule.generation };
    } catch (error) {
      if (error instanceof InvalidInputError) throw new RulesError(error.message, { cause: error });
      throw error;
    }
  }
}

function written(request: WireRequest): object {
  const { method, target, headers, hasBody } = request;
  return { method, target, headers, has_body: hasBody };
}

/** The rules that are open in the module, least recently used first. */
const opened = new Map<Rules, Opened>();

/** Open at once. The module itself has room for 1,024. */
const MAX_OPEN = 64;
