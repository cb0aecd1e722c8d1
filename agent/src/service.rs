//! One service that agents call: its rules, and what a proof for it may say.
//!
//! The service publishes its rules, so they may lie. What they cannot change:
//!
//! - the service: they count for requests to the origin that the agent's operator named, and a proof goes there only;
//! - the audience of a proof: a name that the operator listed, or without a list one at that origin. So no other service
//!   accepts the proof;
//! - the authority: a proof is for a tool with arguments that the agent's delegation grants.

use credence_decision::agents::{AgentRules, Invocation};
use credence_decision::config::{ConfigError, ProofKind};
use credence_decision::decision::{Denial, Reason};
use credence_decision::request::serialize_headers;
use credence_delegation::mint::{self, DpopRequest, Unsigned};
use credence_delegation::{HeldChain, HttpUri, PublicKey, UnixTime};

/// A service and its rules.
#[derive(Debug)]
pub struct Service {
    origin: Origin,
    /// The names that proofs may be for. Empty: those at the origin.
    audience: Vec<String>,
    rules: AgentRules,
}

/// Scheme, host and port, as `https://payments.example`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    text: String,
    uri: HttpUri,
}

/// Why a service cannot be called.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// It is not named by its origin.
    #[error("`{0}` is not an origin; write scheme and host without a path, such as `https://payments.example`")]
    Origin(String),
    /// Its rules cannot be read.
    #[error("the service's rules cannot be used: {0}")]
    Rules(#[from] ConfigError),
    /// It asks for proofs for other services.
    #[error(
        "its rules ask for proofs for {asked}, which is not {expected}; if that is this service, list it in `audience`"
    )]
    Audience {
        /// The names in the rules.
        asked: String,
        /// What they may be.
        expected: String,
    },
}

/// What only this presentation has: the id and time of its proof, and the service's nonce.
#[derive(Debug, Clone, Copy)]
pub struct Once<'a> {
    /// A new one for each proof.
    pub id: &'a str,
    /// The current time.
    pub now: UnixTime,
    /// The latest nonce of the service, if it gave one.
    pub nonce: Option<&'a str>,
}

/// What an agent holds.
#[derive(Debug, Clone, Copy)]
pub enum Credential<'a> {
    /// A delegation.
    Delegation(&'a HeldChain),
    /// An access token, and the key that it is bound to.
    AccessToken(&'a str, Option<&'a PublicKey>),
}

/// What a request presents.
#[derive(Debug)]
pub struct Presentation {
    /// The header with the credential, and its value.
    pub header: (String, String),
    /// What proves that the agent holds it.
    pub possession: Possession,
}

/// What proves that the agent holds its credential.
#[derive(Debug)]
pub enum Possession {
    /// A proof in this header, which the holder's key signs.
    Signed {
        /// The header.
        header: String,
        /// The proof.
        proof: Unsigned,
    },
    /// The certificate of the connection.
    Certificate,
    /// Nothing.
    None,
}

impl Service {
    /// The service at this origin. Its proofs may be for these names; without any, for names at the origin.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub fn new(origin: Origin, audience: &[String], rules: &[u8]) -> Result<Self, ServiceError> {
        let service = Self {
            origin,
            audience: audience.to_vec(),
            rules: AgentRules::parse(rules)?,
        };
        if !service.rules.audience.iter().any(|name| service.is_own_name(name)) {
            return Err(ServiceError::Audience {
                asked: service.rules.audience.join(", "),
                expected: match audience {
                    [] => format!("at {}", service.origin.text),
                    listed => listed.join(" or "),
                },
            });
        }
        Ok(service)
    }

    /// Its rules.
    pub fn rules(&self) -> &AgentRules {
        &self.rules
    }

    /// Its origin.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// What a request with this method and path presents for a call.
    ///
    /// # Errors
    /// The credential does not grant the call, or the service would not accept it.
    pub fn presentation(
        &self,
        call: &Invocation<'_>,
        credential: Credential<'_>,
        (method, path): (&str, &str),
        once: Once<'_>,
    ) -> Result<Presentation, Denial> {
        let (name, value, possession) = match credential {
            Credential::Delegation(chain) => {
                let possession = self.possession(call, chain, once)?;
                (
                    self.rules.headers.delegation.clone(),
                    chain.joined().to_owned(),
                    possession,
                )
            }
            Credential::AccessToken(token, key) => {
                let request = DpopRequest {
                    id: once.id,
                    issued_at: once.now,
                    method,
                    uri: &format!("{}{path}", self.origin.text),
                    access_token: Some(token),
                    nonce: once.nonce,
                };
                let possession = token_possession(call, &request, key)?;
                let scheme = match &possession {
                    Possession::Signed { .. } => "DPoP",
                    Possession::Certificate | Possession::None => "Bearer",
                };
                ("authorization".to_owned(), format!("{scheme} {token}"), possession)
            }
        };
        Ok(Presentation {
            header: (name, value),
            possession,
        })
    }

    fn possession(&self, call: &Invocation<'_>, chain: &HeldChain, once: Once<'_>) -> Result<Possession, Denial> {
        let rules = &self.rules;
        let limits = &rules.limits;
        if chain.expires_at() <= once.now {
            return Err(Reason::Expired.into());
        }
        if chain.joined().len() > limits.chain_bytes {
            return Err(Reason::DelegationTooLarge.into());
        }
        if chain.depth() > limits.delegation_depth {
            return Err(Reason::DelegationTooDeep.into());
        }
        if !rules.issuers.iter().any(|issuer| issuer == chain.issuer()) {
            return Err(Reason::IssuerUnknown.into());
        }
        let names = call.requirement.audience.iter().filter(|name| self.is_own_name(name));
        let names: Vec<String> = names.cloned().collect();
        chain.is_for(&names)?;
        if let Some(tool) = &call.tool {
            let granted = match call.hides_arguments {
                true => chain.permits_all(tool),
                false => chain.permits(tool, &call.arguments),
            };
            granted.map_err(|denial| about_tool(denial, tool))?;
        }
        match call.requirement.proof {
            ProofKind::Mtls => Ok(Possession::Certificate),
            ProofKind::None => Ok(Possession::None),
            ProofKind::Pop | ProofKind::Dpop => {
                let holder = chain.holder().ok_or(Reason::ProofSignatureInvalid)?;
                let algorithm = holder.key_type().algorithm();
                if !rules.holder_algorithms.allow(algorithm) {
                    return Err(Reason::ProofAlgorithmNotAllowed.into());
                }
                let invocation = mint::Invocation {
                    id: once.id.to_owned(),
                    issued_at: once.now,
                    tool: call.proven.clone(),
                    arguments: call.arguments.clone(),
                    // Every name is the service's, so the first that it knows is as good as any.
                    audience: Some(names.first().ok_or(Reason::AudienceMismatch)?.clone()),
                    nonce: once.nonce.map(str::to_owned),
                };
                let proof = chain.proof(&invocation, limits);
                Ok(Possession::Signed {
                    header: rules.headers.proof.clone(),
                    proof: proof.map_err(|_| Reason::ProofMalformed)?,
                })
            }
        }
    }

    /// Whether a name in the rules is the service's own.
    pub fn is_own_name(&self, name: &str) -> bool {
        match self.audience.is_empty() {
            true => Origin::of_url(name).is_some_and(|origin| origin.uri == self.origin.uri),
            false => self.audience.iter().any(|listed| listed == name),
        }
    }
}

/// What proves a call with an access token, if its rule reads any.
fn token_possession(
    call: &Invocation<'_>,
    request: &DpopRequest<'_>,
    key: Option<&PublicKey>,
) -> Result<Possession, Denial> {
    let authorization = call.requirement.authorization.as_ref();
    match authorization.ok_or(Reason::DelegationMissing)?.proof {
        ProofKind::Mtls => Ok(Possession::Certificate),
        ProofKind::None => Ok(Possession::None),
        ProofKind::Dpop | ProofKind::Pop => Ok(Possession::Signed {
            header: "dpop".to_owned(),
            proof: mint::dpop(request, key.ok_or(Reason::ProofMissing)?),
        }),
    }
}

impl Origin {
    /// Reads `https://payments.example`, with or without a port and a last slash.
    ///
    /// # Errors
    /// It is no origin.
    pub fn parse(text: &str) -> Result<Self, ServiceError> {
        let bare = text.strip_suffix('/').unwrap_or(text);
        let is_bare = bare
            .split_once("://")
            .is_some_and(|(_, rest)| !rest.contains(['/', '?', '#', '@']));
        let origin = Self::of_url(bare).filter(|_| is_bare);
        origin.ok_or_else(|| ServiceError::Origin(text.to_owned()))
    }

    /// The origin of a URL.
    pub fn of_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next()?;
        Some(Self {
            uri: HttpUri::new(scheme, authority, "/")?,
            text: format!("{scheme}://{authority}"),
        })
    }

    /// Whether both name the same origin.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.uri == other.uri
    }

    /// The headers of a request to this origin, as the service's filter gets them.
    pub fn serialized<'a, N: From<&'a str> + AsRef<[u8]>>(
        &'a self,
        method: &'a str,
        target: &'a str,
        headers: impl Iterator<Item = (N, &'a [u8])>,
    ) -> Vec<u8> {
        let (scheme, authority) = self.text.split_once("://").unwrap_or_default();
        let own = [
            (":method", method),
            (":scheme", scheme),
            (":authority", authority),
            (":path", target),
        ];
        let own = own.map(|(name, value)| (N::from(name), value.as_bytes()));
        serialize_headers(&own.into_iter().chain(headers).collect::<Vec<_>>())
    }

    /// As it was written, without a path.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Names the tool in the denial of one that is not granted, as the filter does.
pub(crate) fn about_tool(denial: credence_delegation::Denial, tool: &str) -> Denial {
    let mut denial = Denial::from(denial);
    if denial.reason == Reason::ToolNotGranted {
        denial.argument = Some(tool.to_owned());
    }
    denial
}
