//! Why a chain or an invocation is denied.

use std::fmt;

use crate::constraint::ConstraintError;
use crate::json::JsonError;
use crate::key::KeyError;
use crate::value::InadmissibleNumber;

/// A denial: the failed step of the draft's section 8, and the cause.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {step}: {cause}")]
pub struct Denial {
    /// The step that failed.
    pub step: Step,
    /// What was wrong.
    pub cause: Cause,
}

/// What was wrong. The texts are for operators and developers; they are not sent to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// No tokens.
    #[error("the chain is empty")]
    Empty,
    /// A token, a proof or the whole chain exceeds its limit.
    #[error("{what} has {size} bytes; the limit is {limit}")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// More tokens than the greatest delegation depth allows.
    #[error("the chain has {tokens} tokens; the limit is {limit}")]
    TooLong {
        /// Tokens presented.
        tokens: usize,
        /// Tokens allowed.
        limit: usize,
    },
    /// Not a JWS, or without the expected JSON.
    #[error("malformed: {0}")]
    Malformed(String),
    /// The payload is not strict JSON.
    #[error("malformed claims: {0}")]
    Json(#[from] JsonError),
    /// The same token twice in one chain.
    #[error("the token id occurs twice in the chain")]
    Repeated,
    /// `typ` has the wrong value.
    #[error("the typ header must be \"{expected}\"")]
    WrongType {
        /// The expected media type.
        expected: &'static str,
    },
    /// `crit` names an extension that is not implemented, or is empty.
    #[error("the crit header names an extension that is not implemented")]
    CriticalHeader,
    /// `alg` is not allowed here, or does not fit the key.
    #[error("the alg header is not allowed here or does not fit the key")]
    AlgorithmNotAllowed,
    /// The expected key did not make the signature.
    #[error("the signature does not verify")]
    SignatureInvalid,
    /// The header's `kid` names none of the keys that are configured for the issuer.
    #[error("the kid header names none of the issuer's configured keys")]
    KeyUnknown,
    /// The keys of the issuer were not fetched yet, or too long ago.
    #[error("the issuer's keys are not known, or are too old")]
    KeysUnavailable,
    /// The header's `kid` does not select one of the issuer's keys, and they are too many to try all.
    #[error("the header names none of the issuer's {keys} keys by kid; at most {limit} of this kind are tried")]
    KeyNotNamed {
        /// How many keys remain.
        keys: usize,
        /// How many may be tried.
        limit: usize,
    },
    /// The token names no key of its holder, so no signature can be its holder's.
    #[error("the token names no key of its holder")]
    HolderUnknown,
    /// No trust anchor is configured for the issuer.
    #[error("the issuer is not a configured trust anchor")]
    IssuerUnknown,
    /// A claim that is missing or has the wrong type.
    #[error("claim \"{claim}\": {expected}")]
    Claim {
        /// The claim's name.
        claim: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// `cnf.jwk` is not a usable public key.
    #[error("claim \"cnf\": {0}")]
    Key(#[from] KeyError),
    /// `exp` has passed.
    #[error("expired")]
    Expired,
    /// `iat` is in the future.
    #[error("issued in the future")]
    IssuedInFuture,
    /// `exp` is not after `iat`, or too long after it.
    #[error("the lifetime is empty or longer than allowed")]
    Lifetime,
    /// A constraint is not well-formed.
    #[error("{0}")]
    Constraint(ConstraintError),
    /// A derived token without a link to its parent.
    #[error("not linked to the parent token: {0}")]
    Linkage(&'static str),
    /// A derived token that grants more than its parent.
    #[error("exceeds the parent token: {0}")]
    Attenuation(String),
    /// The audience is another one, or a required one is missing.
    #[error("the audience does not include this enforcement point")]
    Audience,
    /// The leaf does not grant the tool.
    #[error("the tool is not granted")]
    ToolNotGranted,
    /// An argument violates its constraint.
    #[error("argument \"{0}\" is out of bounds")]
    ArgumentRejected(String),
    /// A required argument is missing.
    #[error("argument \"{0}\" is required")]
    ArgumentMissing(String),
    /// An argument that the leaf does not name.
    #[error("argument \"{0}\" is not granted")]
    ArgumentNotGranted(String),
    /// An argument has a number that JCS cannot represent.
    #[error("{0}")]
    Inadmissible(#[from] InadmissibleNumber),
    /// The invocation has no proof.
    #[error("a proof of possession is required")]
    ProofMissing,
    /// The proof is for another token, tool or invocation.
    #[error("the proof does not match: {0}")]
    ProofMismatch(&'static str),
    /// The proof was made too long ago, or in the future.
    #[error("the proof's iat is outside the window")]
    ProofTime,
    /// The nonce is missing or not accepted.
    #[error("the proof's nonce is missing or not accepted")]
    Nonce,
}

macro_rules! steps {
    ($($variant:ident $name:literal $meaning:literal,)*) => {
        /// A step of the draft's section 8.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Step {
            $(#[doc = $meaning] $variant,)*
        }

        impl Step {
            /// The step as the draft writes it, such as `4p1`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Whether the step depends only on the root, so that a chain with other tokens below it fails in the same
            /// way.
            #[must_use]
            pub fn is_of_root(self) -> bool {
                self.name().starts_with('3')
            }
        }
    };
}

steps! {
    S1 "1" "The chain is not empty.",
    S2a "2a" "Size of each token.",
    S2b "2b" "Size of the chain.",
    S2c "2c" "Every token has an id, and no two the same.",
    S3a "3a" "The root's header.",
    S3b "3b" "The root's signature and times.",
    S3c "3c" "The root's depth.",
    S3d "3d" "The root has no parent.",
    S3e "3e" "The root has not expired.",
    S3f "3f" "The root is not from the future.",
    S3g "3g" "The root's lifetime is not empty.",
    S3h "3h" "The root's lifetime is within the limit.",
    S3i "3i" "The root's depth limit.",
    S3j "3j" "The root's id.",
    S3k "3k" "The root's issuer.",
    S3l "3l" "The root's holder key.",
    S3m "3m" "The root's capabilities.",
    S3n "3n" "The root's constraints.",
    S4a "4a" "A derived token's header.",
    S4b "4b" "A derived token's signature.",
    S4b1 "4b1" "A derived token's id.",
    S4b2 "4b2" "A derived token's holder key.",
    S4b3 "4b3" "A derived token's capabilities are an array.",
    S4b4 "4b4" "A derived token's depths.",
    S4b5 "4b5" "A derived token's issuer, link and times.",
    S4c "4c" "A derived token's issuer is its parent's holder.",
    S4d "4d" "Depth grows by one.",
    S4e "4e" "Depth is within the parent's limit.",
    S4f "4f" "Depth is within our limit.",
    S4g "4g" "The depth limit does not grow.",
    S4h "4h" "A derived token does not outlive its parent.",
    S4i "4i" "A derived token has not expired.",
    S4j "4j" "A derived token is not older than its parent.",
    S4k "4k" "A derived token is not from the future.",
    S4l "4l" "A derived token's lifetime is not empty.",
    S4m "4m" "Depth is within the token's own limit.",
    S4n "4n" "A derived token has at most one set of capabilities.",
    S4o "4o" "A derived token's constraints.",
    S4p1 "4p1" "No tool is added.",
    S4p2 "4p2" "No argument is added or dropped.",
    S4p3 "4p3" "No required argument becomes optional.",
    S4p4 "4p4" "No constraint widens.",
    S4q "4q" "A derived token names its parent.",
    S5 "5" "The chain is as long as the leaf is deep.",
    S6a "6a" "The leaf has capabilities.",
    S6b "6b" "The leaf grants the invocation.",
    S6c "6c" "The chain is meant for this enforcement point.",
    S7a "7a" "The proof's header.",
    S7b "7b" "The proof's signature.",
    S7c "7c" "The proof's claims, and the token it is for.",
    S7d "7d" "The proof is meant for this enforcement point.",
    S7e "7e" "The proof is for this tool.",
    S7f "7f" "The proof is for these arguments.",
    S7g "7g" "The proof is recent.",
    S7h "7h" "The proof has our nonce.",
    S7i "7i" "The proof is used once.",
}

impl Step {
    /// A denial at this step.
    pub fn deny(self, cause: impl Into<Cause>) -> Denial {
        Denial {
            step: self,
            cause: cause.into(),
        }
    }

    /// Denies at this step unless `holds`.
    pub(crate) fn ensure(self, holds: bool, cause: Cause) -> Result<(), Denial> {
        if holds { Ok(()) } else { Err(self.deny(cause)) }
    }

    /// Denies at this step if `size` exceeds `limit`.
    pub(crate) fn check_size(self, what: &'static str, size: usize, limit: usize) -> Result<(), Denial> {
        self.ensure(size <= limit, Cause::TooLarge { what, size, limit })
    }

    /// A denial at this step because of a claim that is missing or has the wrong type.
    pub(crate) fn claim(self, claim: &'static str, expected: &'static str) -> Denial {
        self.deny(Cause::Claim { claim, expected })
    }

    /// A denial at this step of input that is not a JWS, or lacks the expected JSON.
    pub(crate) fn malformed(self, what: &str) -> Denial {
        self.deny(Cause::Malformed(what.to_owned()))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
