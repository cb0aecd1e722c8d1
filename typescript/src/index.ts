/**
 * Hold a delegation, hand on less of it, and prove each request to services behind Credence.
 *
 * @packageDocumentation
 */

export { Delegation, type Constraints, type Grant, type UnverifiedToken } from "./delegation.js";
export { CredenceError, type Denial, Denied, InvalidInputError, KeyError, ModuleError, RulesError } from "./errors.js";
export { delegatedFetch, type DelegatedFetchOptions } from "./fetch.js";
export type { Arguments, Json } from "./json.js";
export { type KeyAlgorithm, type KeyOptions, PrivateKey, type PrivateJwk } from "./private-key.js";
export { type DpopRequest, dpopProof, type Invocation, prove } from "./proofs.js";
export {
  type Authorization,
  type Credential,
  type DelegationCredential,
  type FetchOptions,
  type OutgoingRequest,
  Service,
  type ServiceOptions,
  type TokenCredential,
} from "./service.js";
export { type Algorithm, type PublicJwk, type Signer, thumbprint } from "./signer.js";
export { type Verdict, verify } from "./verify.js";
