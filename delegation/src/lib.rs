//! Attenuating Authorization Tokens (draft-niyikiza-oauth-attenuating-agent-tokens-02, "the draft" throughout):
//! delegation chains and their proofs, verified step by step as section 8 of the draft numbers them.
//!
//! The crate is pure. It reads no clock, no file and no network; time and keys are arguments. It does not panic:
//! every failure is a [`Denial`] that names the draft's step.
//!
//! The types, in reading order:
//!
//! 1. [`Chain::parse`] reads the presented tokens and makes all checks that need no signature;
//! 2. [`Chain::verify`] turns it into a [`VerifiedChain`], the only type that authorises anything;
//! 3. [`VerifiedChain::identifies_audience`] and [`VerifiedChain::permits`] decide one invocation;
//! 4. [`Proof::verify`] checks that the presenter holds the leaf key, and [`VerifiedProof::covers`] that it signed
//!    exactly this invocation;
//! 5. [`revocation::check_revocation`] tells whether the chain was revoked.
//!
//! If a chain's first tokens were verified before, [`Chain::parse_joined_after`] verifies only the new signatures. If
//! another worker has verified them and its statement is authenticated, [`Beginning`] skips only their signatures.
//! `batch` verifies many signatures at once, for evidence and never for a decision; `evidence` verifies recorded
//! chains.
//!
//! [`mint`] is the other side: issuing, deriving, proving, and signing revocation statements. [`Statement`] verifies
//! such a statement. A [`HeldChain`] is a delegation on the side of its holder.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod access_token;
mod access_token_settings;
mod anchor;
mod authorization_details;
mod base64url;
pub mod batch;
mod by_name;
mod canonical;
mod capabilities;
mod chain;
pub mod constraint;
mod denial;
mod dpop;
pub mod evidence;
mod findings;
mod held;
pub mod inspect;
mod issuer_keys;
pub mod json;
pub mod jws;
mod key;
mod limits;
pub mod mint;
mod number;
mod presented;
mod proof;
pub mod revocation;
pub mod sort;
mod spiffe;
mod statement;
mod time;
mod token;
pub mod trust;
mod unverified_claims;
mod uri;
mod value;
mod verified;

pub use access_token::{AccessTokens, ScopeClaim};
pub use anchor::{FetchedAnchor, TrustAnchor, TrustAnchors};
pub use capabilities::{Capabilities, ConstraintMap, ToolGrant};
pub use chain::{Beginning, Chain, VerificationContext};
pub use denial::{Cause, Denial, Step};
pub use dpop::{BoundToken, DpopContext, DpopProof, VerifiedDpop};
pub use findings::{Findings, Location, MAX_PROBLEMS, Remark};
pub use held::HeldChain;
pub use issuer_keys::IssuerKeys;
pub use key::{
    Algorithm, Algorithms, DidKeyError, HotKeys, IdentifiedKey, JwkSet, JwkSetError, KeyError, KeyType, PublicKey,
    SigningKey, SkippedKey, Thumbprint,
};
pub use limits::Limits;
pub use number::{Double, Number};
pub use presented::{PresentedChain, PresentedToken};
pub use proof::{NoncePolicy, Proof, ProofContext, VerifiedProof};
pub use statement::{Revocation, RevocationOrder, Statement, StatementContext, StatementError, VerifiedStatement};
pub use time::UnixTime;
pub use token::{Holder, VerifiedToken};
pub use uri::HttpUri;
pub use value::{Arguments, InadmissibleNumber, Members, Value, canonicalize};
pub use verified::{AudiencePolicy, Principal, VerifiedChain, chain_digest};
