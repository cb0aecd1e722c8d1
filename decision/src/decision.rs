//! The decision about a request, and its reason.

use std::rc::Rc;

use credence_delegation::revocation::RevocationReason;
use credence_delegation::{Cause, Step};

use crate::request::HeaderMapError;
use crate::route::Unclear;

/// The outcome for one request, which is decided exactly once and audited.
///
/// `G` is what the engine knows about a request that a delegation authorised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<G> {
    /// The request passes.
    Allow(Allowance<G>),
    /// The request is denied, and answered.
    Deny(Denial),
}

/// Why a request passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowance<G> {
    /// A delegation authorised it.
    Delegated(G),
    /// Its rule is public.
    Public,
    /// No rule matched, and the configuration has `default: allow`.
    Unmatched,
    /// The filter answers it, with this metadata of a protected resource (RFC 9728).
    ResourceMetadata(Rc<str>),
}

impl<G> Allowance<G> {
    /// The stable code in audit and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Delegated(_) => "delegated",
            Self::Public => "public",
            Self::Unmatched => "unmatched",
            Self::ResourceMetadata(_) => "resource_metadata",
        }
    }
}

/// A denial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The full reason, for audit and metrics. A client receives [`Reason::shown`].
    pub reason: Reason,
    /// The argument, query member, header or tool that caused the denial.
    pub argument: Option<String>,
    /// The failed step of the draft's section 8, if any. Not for clients.
    pub step: Option<Step>,
}

impl Denial {
    /// A denial caused by this argument, query member or header.
    pub fn about(reason: Reason, argument: &str) -> Self {
        Self {
            argument: Some(argument.to_owned()),
            ..reason.into()
        }
    }
}

impl From<Reason> for Denial {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            argument: None,
            step: None,
        }
    }
}

impl From<HeaderMapError> for Denial {
    fn from(error: HeaderMapError) -> Self {
        match error {
            HeaderMapError::Malformed => Reason::HostFailure,
            HeaderMapError::TooManyPairs | HeaderMapError::RepeatedPseudoHeader => Reason::RequestMalformed,
        }
        .into()
    }
}

impl From<Unclear<'_>> for Denial {
    fn from(unclear: Unclear<'_>) -> Self {
        match unclear {
            Unclear::Path | Unclear::Spelling => Reason::PathAmbiguous.into(),
            Unclear::Header(name) | Unclear::Query(name) => Self::about(Reason::ConditionAmbiguous, name),
        }
    }
}

impl From<credence_delegation::Denial> for Denial {
    fn from(denial: credence_delegation::Denial) -> Self {
        let reason = Reason::of(denial.step, &denial.cause);
        let argument = match denial.cause {
            Cause::ArgumentRejected(name) | Cause::ArgumentMissing(name) | Cause::ArgumentNotGranted(name) => {
                Some(name)
            }
            _ => None,
        };
        Self {
            reason,
            argument,
            step: Some(denial.step),
        }
    }
}

impl From<RevocationReason> for Denial {
    fn from(reason: RevocationReason) -> Self {
        match reason {
            RevocationReason::PrincipalDisabled => Reason::DisabledPrincipal,
            RevocationReason::PrincipalRevoked => Reason::RevokedPrincipal,
            RevocationReason::IssuerRevoked => Reason::RevokedIssuer,
            RevocationReason::KeyRevoked => Reason::RevokedKey,
            RevocationReason::KeyWithdrawn => Reason::KeyWithdrawn,
            RevocationReason::DelegationRevoked => Reason::RevokedDelegation,
            RevocationReason::BeyondMemory => Reason::LifetimeNotAllowed,
        }
        .into()
    }
}

/// The class of a reason, which determines the answer to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The request is ambiguous or malformed; no credential would help.
    Request,
    /// The request exceeds a size limit.
    TooLarge,
    /// No credential was presented.
    Missing,
    /// The delegation is invalid.
    Delegation,
    /// The proof is invalid.
    Proof,
    /// The delegation is valid, but does not grant this.
    Scope,
    /// This path, or this way of using it, is closed to all clients.
    Closed,
    /// The HTTP method has no use here.
    Method,
    /// There is nothing of this name.
    NotFound,
    /// The proxy's own state does not permit a decision.
    Unavailable,
}

impl Class {
    /// The HTTP status.
    pub fn status(self) -> u16 {
        match self {
            Self::Request => 400,
            Self::TooLarge => 413,
            Self::Missing | Self::Delegation | Self::Proof => 401,
            Self::Scope | Self::Closed => 403,
            Self::NotFound => 404,
            Self::Method => 405,
            Self::Unavailable => 503,
        }
    }

    /// The gRPC status: INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED or UNAVAILABLE.
    pub fn grpc_status(self) -> u32 {
        match self {
            Self::Request => 3,
            Self::TooLarge => 8,
            Self::Missing | Self::Delegation | Self::Proof => 16,
            Self::Scope | Self::Closed => 7,
            Self::Method | Self::NotFound => 12,
            Self::Unavailable => 14,
        }
    }

    /// The `error` of `WWW-Authenticate` (as in RFC 6750, section 3.1), if other credentials could help.
    pub fn challenge(self) -> Option<&'static str> {
        match self {
            Self::Missing => Some("missing_token"),
            Self::Delegation => Some("invalid_token"),
            Self::Proof => Some("invalid_proof"),
            Self::Scope => Some("insufficient_scope"),
            Self::Request | Self::TooLarge | Self::Closed | Self::Method | Self::NotFound | Self::Unavailable => None,
        }
    }
}

macro_rules! reasons {
    ($($variant:ident $code:literal $class:ident $title:literal,)*) => {
        /// Why a request was denied. The codes are stable: dashboards, alerts and clients may rely on them.
        /// docs/reference/errors.md explains each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason {
            $(#[doc = $title] $variant,)*
        }

        impl Reason {
            /// Every reason, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable code.
            pub fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// The class, which determines the answer.
            pub fn class(self) -> Class {
                match self { $(Self::$variant => Class::$class,)* }
            }

            /// One sentence for people, in ASCII without quotes or backslashes, so that a header can contain it.
            pub fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

reasons! {
    RequestMalformed "request_malformed" Request "The request has too many headers, or a pseudo-header twice.",
    MethodAmbiguous "method_ambiguous" Request "The method is not in capital letters.",
    HostMalformed "host_malformed" Request "The host is not a name or address with an optional port.",
    HostAmbiguous "host_ambiguous" Request "The host has a port or a trailing dot, and may lead to another service.",
    PathAmbiguous "path_ambiguous" Request "The path can be read in more than one way.",
    QueryAmbiguous "query_ambiguous" Request "The query can be read in more than one way.",
    QueryTooLong "query_too_long" Request "The query has too many members.",
    ConditionAmbiguous "condition_ambiguous" Request "A header or query member that tells rules apart can be read in more than one way.",
    NoRoute "no_route" Closed "No rule covers this request.",
    ClusterMismatch "cluster_mismatch" Closed "The proxy routes this request elsewhere than its rule expects.",
    UpgradeDenied "upgrade_denied" Closed "CONNECT and upgrades are not allowed here.",
    DelegationMissing "delegation_missing" Missing "The request carries no delegation.",
    CredentialsAmbiguous "credentials_ambiguous" Request "The request presents more than one credential.",
    AuthorizationScheme "authorization_scheme" Delegation "The access token must be presented with another scheme.",
    DelegationRepeated "delegation_repeated" Delegation "The delegation header occurs more than once.",
    DelegationTooLarge "delegation_too_large" Delegation "The delegation is larger than allowed.",
    DelegationTooDeep "delegation_too_deep" Delegation "The delegation has been handed on more often than allowed.",
    DelegationMalformed "delegation_malformed" Delegation "The delegation is not well formed.",
    DelegationInvalid "delegation_invalid" Delegation "The delegation is not valid.",
    IssuerUnknown "issuer_unknown" Delegation "No trust anchor is configured for the issuer.",
    KeyUnknown "key_unknown" Delegation "The token's kid selects none of the keys configured for its issuer.",
    AlgorithmNotAllowed "algorithm_not_allowed" Delegation "The signature algorithm is not allowed.",
    SignatureInvalid "signature_invalid" Delegation "A signature of the delegation does not verify.",
    LinkageInvalid "linkage_invalid" Delegation "A token of the delegation is not linked to its parent.",
    Expired "expired" Delegation "The delegation has expired.",
    IssuedInFuture "issued_in_future" Delegation "The delegation is dated in the future.",
    LifetimeNotAllowed "lifetime_not_allowed" Delegation "The delegation lives longer than allowed.",
    AttenuationViolated "attenuation_violated" Delegation "A derived token grants more than its parent.",
    AudienceMismatch "audience_mismatch" Delegation "The delegation is meant for another audience.",
    RevokedPrincipal "revoked_principal" Delegation "The principal has revoked what was delegated.",
    DisabledPrincipal "disabled_principal" Delegation "The principal is disabled.",
    RevokedIssuer "revoked_issuer" Delegation "What this issuer signed up to some time is revoked.",
    RevokedKey "revoked_key" Delegation "A key of the delegation is revoked.",
    KeyWithdrawn "key_withdrawn" Delegation "The issuer has withdrawn the key that signed the delegation.",
    RevokedDelegation "revoked_delegation" Delegation "The delegation, or one it was derived from, is revoked.",
    ProofMissing "proof_missing" Proof "The request carries no proof of possession.",
    ProofRepeated "proof_repeated" Proof "The proof header occurs more than once.",
    ProofTooLarge "proof_too_large" Proof "The proof is larger than allowed.",
    ProofMalformed "proof_malformed" Proof "The proof is not well formed.",
    ProofInvalid "proof_invalid" Proof "The proof is not valid.",
    ProofAlgorithmNotAllowed "proof_algorithm_not_allowed" Proof "The signature algorithm of the proof is not allowed.",
    ProofSignatureInvalid "proof_signature_invalid" Proof "The signature of the proof does not verify.",
    ProofMismatch "proof_mismatch" Proof "The proof was made for another token, audience or invocation.",
    ProofOutsideWindow "proof_outside_window" Proof "The proof is too old or dated in the future.",
    NonceRequired "nonce_required" Proof "The proof must carry a nonce that this proxy has handed out.",
    ProofReplayed "proof_replayed" Proof "The proof has been used before.",
    ProofPredatesMemory "proof_predates_memory" Proof "The proof is older than the memory of used proofs.",
    CertificateMissing "certificate_missing" Proof "The connection shows no client certificate.",
    CertificateMismatch "certificate_mismatch" Proof "The delegation is bound to another client certificate.",
    ToolNotGranted "tool_not_granted" Scope "The delegation does not grant this tool.",
    ArgumentNotAllowed "argument_not_allowed" Scope "The delegation does not allow this value of the argument.",
    ArgumentNotGranted "argument_not_granted" Scope "The delegation does not grant this argument.",
    ArgumentMissing "argument_missing" Scope "A required argument is missing.",
    BodyUnmapped "body_unmapped" Scope "The request has a body, which is no argument of this tool.",
    BodyTooLarge "body_too_large" TooLarge "The body is larger than what is read.",
    BodyIncomplete "body_incomplete" Request "The request ended before its body was complete.",
    BodyMediaType "body_media_type" Request "The body is not plain application/json in UTF-8.",
    BodyMalformed "body_malformed" Request "The body is not JSON, or can be read in more than one way.",
    ArgumentUnknown "argument_unknown" Scope "The query or the body has a member that is no argument of this tool.",
    ArgumentRepeated "argument_repeated" Scope "An argument is given more than once.",
    ArgumentMalformed "argument_malformed" Scope "An argument is not of its type.",
    ArgumentAmbiguous "argument_ambiguous" Scope "An argument can be read in more than one way.",
    McpMessageInvalid "mcp_message_invalid" Request "The body is not one valid JSON-RPC message of this MCP version.",
    McpVersionNotAllowed "mcp_version_not_allowed" Request "This version of MCP is not allowed here.",
    McpHeaderMismatch "mcp_header_mismatch" Request "An MCP header is missing, or differs from the body.",
    McpHttpMethod "mcp_http_method" Method "MCP does not use this HTTP method here.",
    McpMethodNotAllowed "mcp_method_not_allowed" NotFound "This MCP method is not allowed here.",
    McpSessionInvalid "mcp_session_invalid" NotFound "The MCP session or event is not one of this principal and holder.",
    McpToolNotMapped "mcp_tool_not_mapped" Closed "This MCP tool is not allowed here.",
    Stale "stale" Unavailable "The revocation state is too old to decide.",
    KeysUnavailable "keys_unavailable" Unavailable "The keys of the issuer are not known, or too old.",
    NotReady "not_ready" Unavailable "The revocation state has not arrived yet.",
    ReplayMemoryFull "replay_memory_full" Unavailable "The memory of used proofs has no room.",
    TooManyHeld "too_many_held" Unavailable "Too many requests are held for their bodies.",
    AuditFull "audit_full" Unavailable "The decision could not be recorded.",
    HostFailure "host_failure" Unavailable "The proxy could not provide what a decision needs.",
}

impl Reason {
    /// The reason in the client's answer.
    ///
    /// Only the operator may learn which cryptographic check failed, and which issuers are trusted.
    pub fn shown(self) -> Self {
        match self {
            Self::IssuerUnknown
            | Self::KeyUnknown
            | Self::AlgorithmNotAllowed
            | Self::SignatureInvalid
            | Self::LinkageInvalid => Self::DelegationInvalid,
            Self::ProofAlgorithmNotAllowed | Self::ProofSignatureInvalid => Self::ProofInvalid,
            other => other,
        }
    }

    /// Whether the reason is a revocation.
    pub fn is_revocation(self) -> bool {
        matches!(
            self,
            Self::RevokedPrincipal
                | Self::DisabledPrincipal
                | Self::RevokedIssuer
                | Self::RevokedKey
                | Self::KeyWithdrawn
                | Self::RevokedDelegation
        )
    }

    /// The reason for a denial by verification.
    fn of(step: Step, cause: &Cause) -> Self {
        let proof = is_of_proof(step);
        let either = |of_delegation, of_proof| if proof { of_proof } else { of_delegation };
        match cause {
            Cause::TooLarge { .. } => either(Self::DelegationTooLarge, Self::ProofTooLarge),
            Cause::TooLong { .. } => Self::DelegationTooDeep,
            Cause::Empty
            | Cause::Malformed(_)
            | Cause::Json(_)
            | Cause::Repeated
            | Cause::WrongType { .. }
            | Cause::CriticalHeader
            | Cause::Claim { .. }
            | Cause::Key(_)
            | Cause::Constraint(_) => either(Self::DelegationMalformed, Self::ProofMalformed),
            Cause::AlgorithmNotAllowed => either(Self::AlgorithmNotAllowed, Self::ProofAlgorithmNotAllowed),
            Cause::SignatureInvalid | Cause::HolderUnknown => {
                either(Self::SignatureInvalid, Self::ProofSignatureInvalid)
            }
            Cause::IssuerUnknown => Self::IssuerUnknown,
            Cause::KeysUnavailable => Self::KeysUnavailable,
            Cause::KeyUnknown | Cause::KeyNotNamed { .. } => Self::KeyUnknown,
            Cause::Expired => either(Self::Expired, Self::ProofOutsideWindow),
            Cause::IssuedInFuture => either(Self::IssuedInFuture, Self::ProofOutsideWindow),
            Cause::Lifetime => Self::LifetimeNotAllowed,
            Cause::Linkage(_) => Self::LinkageInvalid,
            Cause::Attenuation(_) => Self::AttenuationViolated,
            Cause::Audience => either(Self::AudienceMismatch, Self::ProofMismatch),
            Cause::ToolNotGranted => Self::ToolNotGranted,
            Cause::ArgumentRejected(_) => Self::ArgumentNotAllowed,
            Cause::ArgumentMissing(_) => Self::ArgumentMissing,
            Cause::ArgumentNotGranted(_) => Self::ArgumentNotGranted,
            Cause::Inadmissible(_) => either(Self::ArgumentMalformed, Self::ProofMalformed),
            Cause::ProofMissing => Self::ProofMissing,
            Cause::ProofMismatch(_) | Cause::Nonce => Self::ProofMismatch,
            Cause::ProofTime => Self::ProofOutsideWindow,
        }
    }
}

/// Whether the step belongs to the draft's step 7, about the proof.
fn is_of_proof(step: Step) -> bool {
    step.name().starts_with('7')
}

impl std::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_distinct_snake_case_words() {
        let codes: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        for code in codes {
            assert!(
                code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
                "{code}"
            );
        }
    }

    #[test]
    fn titles_are_valid_in_a_quoted_header_value() {
        for reason in Reason::ALL {
            let title = reason.title();
            assert!(
                title
                    .bytes()
                    .all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'),
                "{title}"
            );
        }
    }

    #[test]
    fn statuses_are_those_of_the_documented_classes() {
        let cases = [
            (Reason::PathAmbiguous, 400, 3, None),
            (Reason::DelegationMissing, 401, 16, Some("missing_token")),
            (Reason::Expired, 401, 16, Some("invalid_token")),
            (Reason::RevokedPrincipal, 401, 16, Some("invalid_token")),
            (Reason::ProofReplayed, 401, 16, Some("invalid_proof")),
            (Reason::ToolNotGranted, 403, 7, Some("insufficient_scope")),
            (Reason::ArgumentNotAllowed, 403, 7, Some("insufficient_scope")),
            (Reason::NoRoute, 403, 7, None),
            (Reason::Stale, 503, 14, None),
        ];
        for (reason, status, grpc_status, challenge) in cases {
            let class = reason.class();
            assert_eq!(
                (class.status(), class.grpc_status(), class.challenge()),
                (status, grpc_status, challenge),
                "{reason}"
            );
        }
    }

    #[test]
    fn a_client_does_not_learn_which_cryptographic_check_failed() {
        let shown: BTreeSet<_> = [
            Reason::IssuerUnknown,
            Reason::KeyUnknown,
            Reason::AlgorithmNotAllowed,
            Reason::SignatureInvalid,
            Reason::LinkageInvalid,
        ]
        .map(|reason| reason.shown().code())
        .into();
        assert_eq!(shown, BTreeSet::from(["delegation_invalid"]));
        for reason in [Reason::ProofAlgorithmNotAllowed, Reason::ProofSignatureInvalid] {
            assert_eq!(reason.shown(), Reason::ProofInvalid);
        }
        for reason in Reason::ALL {
            assert_eq!(reason.shown().class(), reason.class(), "{reason}");
        }
    }

    #[test]
    fn denials_by_verification_keep_their_step_and_argument() {
        let cases = [
            (Step::S3b.deny(Cause::SignatureInvalid), Reason::SignatureInvalid, None),
            (
                Step::S7b.deny(Cause::SignatureInvalid),
                Reason::ProofSignatureInvalid,
                None,
            ),
            (Step::S3k.deny(Cause::IssuerUnknown), Reason::IssuerUnknown, None),
            (Step::S6c.deny(Cause::Audience), Reason::AudienceMismatch, None),
            (Step::S7d.deny(Cause::Audience), Reason::ProofMismatch, None),
            (
                Step::S4p4.deny(Cause::Attenuation("wider".into())),
                Reason::AttenuationViolated,
                None,
            ),
            (
                Step::S6b.deny(Cause::ArgumentRejected("amount".into())),
                Reason::ArgumentNotAllowed,
                Some("amount"),
            ),
            (Step::S7g.deny(Cause::ProofTime), Reason::ProofOutsideWindow, None),
        ];
        for (denial, reason, argument) in cases {
            let step = denial.step;
            let expected = Denial {
                reason,
                argument: argument.map(str::to_owned),
                step: Some(step),
            };
            assert_eq!(Denial::from(denial), expected);
        }
    }

    #[test]
    fn each_reason_of_a_revocation_has_its_code() {
        let cases = [
            (RevocationReason::PrincipalDisabled, "disabled_principal"),
            (RevocationReason::PrincipalRevoked, "revoked_principal"),
            (RevocationReason::IssuerRevoked, "revoked_issuer"),
            (RevocationReason::KeyRevoked, "revoked_key"),
            (RevocationReason::DelegationRevoked, "revoked_delegation"),
        ];
        for (reason, code) in cases {
            assert_eq!(Denial::from(reason).reason.code(), code);
        }
    }

    #[test]
    fn an_unreadable_request_differs_from_a_failing_proxy() {
        assert_eq!(Denial::from(HeaderMapError::Malformed).reason, Reason::HostFailure);
        assert_eq!(
            Denial::from(HeaderMapError::TooManyPairs).reason,
            Reason::RequestMalformed
        );
        assert_eq!(Denial::from(Unclear::Path).reason, Reason::PathAmbiguous);
        for unclear in [Unclear::Header("x-stage"), Unclear::Query("x-stage")] {
            let denial = Denial::from(unclear);
            assert_eq!(
                (denial.reason, denial.argument.as_deref()),
                (Reason::ConditionAmbiguous, Some("x-stage"))
            );
        }
    }

    #[test]
    fn the_documentation_has_every_code_with_its_status() {
        let documentation = include_str!("../../docs/reference/errors.md");
        for reason in Reason::ALL {
            let row = format!("| `{}` | {} |", reason.code(), reason.class().status());
            assert_eq!(
                documentation.matches(&row).count(),
                1,
                "docs/reference/errors.md should have one row starting {row}"
            );
        }
        for code in [
            Allowance::Delegated(()).code(),
            Allowance::<()>::Public.code(),
            Allowance::<()>::Unmatched.code(),
        ] {
            assert!(
                documentation.contains(&format!("| `{code}` |")),
                "docs/reference/errors.md should list {code}"
            );
        }
    }
}
