/** A service that an agent calls: its rules, and the credentials of its requests. */

import type { Delegation } from "./delegation.js";
import { InvalidInputError, KeyError, RulesError } from "./errors.js";
import { fetchRules, LEAST_AGE_SECONDS, MAX_AGE_SECONDS } from "./published-rules.js";
import { Rules, type WireCredential } from "./rules.js";
import { publicMembers, signed, type Signer } from "./signer.js";

/** The credential of an agent. */
export type Credential = DelegationCredential | TokenCredential;

/** A delegation. */
export interface DelegationCredential {
  /** The agent's delegation. */
  readonly delegation: Delegation;
  /** The holder's key. Rules with `proof: none` or `proof: mtls` do not need it. */
  readonly signer?: Signer;
}

/** An OAuth access token, for rules that accept some. */
export interface TokenCredential {
  /** The token, without its scheme. */
  readonly accessToken: string;
  /** The key that it is bound to (DPoP, RFC 9449), if it is bound to one. */
  readonly signer?: Signer;
}

/** How a service is opened. */
export interface ServiceOptions {
  /**
   * The names that proofs may be for. Default: the names at the origin. List a name here only if you know that it is
   * this service: a proof for it counts there.
   */
  readonly audience?: readonly string[];
}

/** How published rules are fetched. */
export interface FetchOptions extends ServiceOptions {
  /** Sends the request for the rules. Default: the global `fetch`. */
  readonly fetch?: typeof fetch;
  /** Milliseconds for the whole answer. Default: 10,000. */
  readonly timeoutMs?: number;
}

/** A request to authorize. */
export interface OutgoingRequest {
  /** The HTTP method, as it is sent. */
  readonly method: string;
  /** The URL. Its path and query are sent exactly as they are here. */
  readonly url: URL;
  /** Names and values in the order of sending, without `host` and those that begin with `:`. */
  readonly headers: readonly (readonly [string, string])[];
  /** Whether it has a body of at least one byte. */
  readonly hasBody: boolean;
  /** Reads all of the body, if a rule does. Of more than 1 MiB, a little more than that is enough: it is denied. */
  readonly readBody: () => Promise<Uint8Array>;
}

/** The headers that authorize one request. */
export interface Authorization {
  /** The rule that matches; `undefined` if the request needs no credential. */
  readonly rule: string | undefined;
  /** The tool that the rule asks for. */
  readonly tool: string | undefined;
  /** The headers to set. They are for this request only, and secret. */
  readonly headers: readonly (readonly [string, string])[];
  /** Whether one of them is a proof, so that a retry needs a new one. */
  readonly isProven: boolean;
}

/** A service behind Credence's filter. */
export class Service {
  /** Scheme, host and port. */
  readonly origin: string;
  readonly #load: () => Promise<Rules>;
  /** The latest nonces, by the header that they came in. */
  readonly #nonces = new Map<string, string>();

  private constructor(origin: string, load: () => Promise<Rules>) {
    this.origin = origin;
    this.#load = load;
  }

  /**
   * The service at this origin, with the rules that it publishes at `/.well-known/credence-agent-rules`. They are
   * fetched now and again when they are stale: after `max-age`, or 300 s; at least 30 s, at most one day. If that fails,
   * the known ones count for up to a day.
   *
   * @throws {@link RulesError} They cannot be fetched: not https, a redirect, more than 8 MiB, too late, or invalid.
   */
  static async discover(origin: string, options: FetchOptions = {}): Promise<Service> {
    const { audience = [], timeoutMs = DEFAULT_TIMEOUT_MS } = options;
    const url = parsedOrigin(origin);
    let current: { readonly rules: Rules; readonly freshUntil: number; readonly endsAt: number } | undefined;
    let pending: Promise<Rules> | undefined;
    const refresh = async (): Promise<Rules> => {
      try {
        const { document, freshUntil } = await fetchRules(url, options.fetch ?? fetch, timeoutMs);
        const rules = new Rules(url.origin, audience, document);
        current = { rules, freshUntil, endsAt: Date.now() + MAX_AGE_SECONDS * 1_000 };
      } catch (error) {
        // The service decides anyway, so old rules do no harm while new ones cannot be had.
        if (current === undefined || Date.now() > current.endsAt) throw error;
        current = { ...current, freshUntil: Date.now() + LEAST_AGE_SECONDS * 1_000 };
      }
      return current.rules;
    };
    const load = (): Promise<Rules> => {
      if (current !== undefined && Date.now() < current.freshUntil) return Promise.resolve(current.rules);
      // Requests at the same time share one fetch.
      pending ??= refresh().finally(() => (pending = undefined));
      return pending;
    };
    await load();
    return new Service(url.origin, load);
  }

  /**
   * The service at this origin, with the rules that its operator gave you: what
   * `credence config describe --for-agents` prints.
   *
   * @throws {@link RulesError} The document is invalid, or asks for proofs for other services.
   */
  static fromDocument(origin: string, document: string | Uint8Array, options: ServiceOptions = {}): Service {
    const url = parsedOrigin(origin);
    const bytes = typeof document === "string" ? new TextEncoder().encode(document) : document.slice();
    const rules = new Rules(url.origin, options.audience ?? [], bytes);
    return new Service(url.origin, () => Promise.resolve(rules));
  }

  /** Whether a URL is at this service. Only requests to such URLs present a credential. */
  isAt(url: URL): boolean {
    return url.origin === this.origin;
  }

  /**
   * The headers that a request must present, with a new proof. For HTTP clients that have no hook here. Set the headers
   * on exactly this request, and do not follow redirects with them.
   *
   * @throws {@link Denied} The service would deny the request.
   * @throws {@link KeyError} The key is missing, or is not the holder's.
   * @throws {@link RulesError} The rules cannot be fetched.
   * @throws {@link InvalidInputError} The request is for another origin, or carries a credential already.
   */
  async authorize(request: OutgoingRequest, credential: Credential): Promise<Authorization> {
    if (!this.isAt(request.url)) {
      throw new InvalidInputError(`the request is for ${request.url.origin}, not for ${this.origin}`);
    }
    refuseCredentials(request.headers.map(([name]) => name));
    const rules = await this.#load();
    const wire = { ...request, target: request.url.pathname + request.url.search };
    const body = rules.readsBody(wire) ? await request.readBody() : new Uint8Array();
    const nonce = this.#nonces.get("delegation" in credential ? "delegation-nonce" : "dpop-nonce");
    const presented = rules.present(wire, body, wireCredential(credential), nonce);
    const headers = [...presented.headers];
    if (presented.proof !== null) {
      const proof = await signed(presented.proof, holder(credential));
      headers.push([presented.proof.name, proof]);
    }
    return {
      rule: presented.rule ?? undefined,
      tool: presented.tool ?? undefined,
      headers,
      isProven: presented.proof !== null,
    };
  }

  /**
   * Remembers the nonce in an answer of the service, for the next proofs. Returns whether a request that was denied
   * with it should be sent once more, with a new proof.
   */
  learnNonce(status: number, header: (name: string) => string | null | undefined): boolean {
    let isDenied = false;
    for (const name of NONCE_HEADERS) {
      const nonce = header(name);
      if (typeof nonce !== "string" || nonce.length > MAX_NONCE_LENGTH) continue;
      this.#nonces.set(name, nonce);
      isDenied ||= status === 401;
    }
    return isDenied;
  }
}

/**
 * Refuses headers that carry a delegation or a proof already.
 * @internal
 */
export function refuseCredentials(names: Iterable<string>): void {
  for (const name of names) {
    if (CREDENTIAL_HEADERS.includes(name.toLowerCase())) {
      throw new InvalidInputError(`the request has a \`${name}\` header; leave it out, it is set for each request`);
    }
  }
}

function wireCredential(credential: Credential): WireCredential {
  if ("delegation" in credential) return { delegation: credential.delegation.text };
  const { accessToken, signer } = credential;
  const jwk = signer === undefined ? null : publicMembers(signer.publicJwk);
  return { access_token: { token: accessToken, jwk } };
}

/** The key that proves. */
function holder(credential: Credential): Signer {
  if (credential.signer === undefined) {
    throw new KeyError("the service asks for a proof; pass the holder's key as `signer`");
  }
  if ("delegation" in credential) credential.delegation.requireHolder(credential.signer);
  return credential.signer;
}

function parsedOrigin(origin: string): URL {
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  const isHttp = url?.protocol === "https:" || url?.protocol === "http:";
  if (url === undefined || !isHttp || url.href !== `${url.origin}/`) {
    throw new RulesError(
      `\`${origin}\` is not an origin; write scheme and host without a path, such as \`https://payments.example\``,
    );
  }
  return url;
}

const CREDENTIAL_HEADERS = ["delegation", "delegation-proof"];
const NONCE_HEADERS = ["delegation-nonce", "dpop-nonce"];
const MAX_NONCE_LENGTH = 1_024;
const DEFAULT_TIMEOUT_MS = 10_000;
