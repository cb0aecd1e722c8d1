//! Access tokens of an identity provider, as the first or only token of a chain (RFC 9068, and plain JWTs of providers
//! that do not write its media type).
//!
//! They are checked at the steps of the draft that ask the same of a root token (section 8, step 3). What they grant is
//! configured: an issuer's scopes and authorization details say what its users agreed to, not which tools that means.

use crate::authorization_details::DetailTypes;
use crate::by_name::ByName;
use crate::capabilities::Capabilities;
use crate::denial::{Cause, Denial, Step};
use crate::json::{Json, Object};
use crate::jws::TokenType;
use crate::key::HotKeys;
use crate::limits::Limits;
use crate::sort::sort;
use crate::time::UnixTime;
use crate::token::{self, Claims, Holder};
use crate::value::Arguments;

/// What the access tokens of an issuer grant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessTokens {
    /// Whether a token of media type `JWT`, or of none, counts as an access token.
    pub(crate) untyped: bool,
    /// The claim that has the scopes.
    pub(crate) scope_claim: ScopeClaim,
    /// What each scope grants. Other scopes grant nothing.
    pub(crate) scopes: ByName<Capabilities>,
    /// What entries of `authorization_details` grant, by their type. Entries of other types grant nothing, except those
    /// of type `attenuating_agent_token`, which are read as the draft says.
    pub(crate) details: DetailTypes,
    /// How often the holder of a key in `cnf.jwk` may hand the token's authority on (`del_max_depth` of a root).
    pub(crate) delegation_depth: u32,
}

/// A claim with scopes: names separated by spaces, or an array of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScopeClaim {
    /// `scope` (RFC 9068, section 2.2.3).
    #[default]
    Scope,
    /// `scp`, as some providers write it.
    Scp,
    /// `roles`: permissions of a client itself.
    Roles,
}

/// Who used an access token besides its subject.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Users {
    /// `client_id` (RFC 9068, section 2.2): the OAuth client that the token was issued to.
    pub(crate) client: Option<String>,
    /// `act` (RFC 8693, section 4.1): the present actor first, then earlier ones, which are for the record only.
    pub(crate) actors: Vec<String>,
}

impl ScopeClaim {
    /// Every claim that a configuration can name.
    pub const ALL: [Self; 3] = [Self::Scope, Self::Scp, Self::Roles];

    /// The claim's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scope => "scope",
            Self::Scp => "scp",
            Self::Roles => "roles",
        }
    }
}

impl AccessTokens {
    /// The first scope that grants this tool with these arguments, or at all if they are not known.
    pub fn scope_for(&self, tool: &str, arguments: Option<&Arguments>) -> Option<&str> {
        let mut scopes = self.scopes.iter();
        let grants = |capabilities: &Capabilities| {
            let grant = capabilities.tool(tool);
            grant.is_some_and(|grant| arguments.is_none_or(|arguments| grant.permits(arguments).is_ok()))
        };
        scopes
            .find(|(_, capabilities)| grants(capabilities))
            .map(|(scope, _)| scope)
    }

    /// The scopes that grant this tool, sorted.
    pub fn scopes_of_tool(&self, tool: &str) -> impl Iterator<Item = &str> {
        let scopes = self.scopes.iter();
        scopes
            .filter(move |(_, capabilities)| capabilities.tool(tool).is_some())
            .map(|(scope, _)| scope)
    }

    /// The tools that scopes grant. Some may be named more than once.
    pub fn tools_of_scopes(&self) -> impl Iterator<Item = &str> {
        self.scopes.iter().flat_map(|(_, capabilities)| capabilities.tools())
    }

    /// The types of authorization details that can grant this tool, sorted.
    pub fn details_of_tool(&self, tool: &str) -> impl Iterator<Item = &str> {
        self.details.of_tool(tool)
    }

    /// Whether tokens of this type count as access tokens here.
    pub(crate) fn accept(&self, token_type: TokenType) -> bool {
        match token_type {
            TokenType::AccessToken => true,
            TokenType::Untyped => self.untyped,
            TokenType::Delegation => false,
        }
    }

    /// Reads the claims of a token whose signature is verified. `hash` is the token's.
    pub(crate) fn read(
        &self,
        token_type: TokenType,
        claims: &Object<'_>,
        hash: String,
        now: UnixTime,
        limits: &Limits,
        hot_keys: Option<&HotKeys>,
    ) -> Result<(Claims, Users), Denial> {
        let issued_at = token::time(claims, "iat", Step::S3b)?;
        let expires_at = token::time(claims, "exp", Step::S3b)?;
        token::check_root_times(issued_at, expires_at, now, limits)?;
        if claims.member("nbf").is_some() {
            let begins_at = token::time(claims, "nbf", Step::S3b)?;
            Step::S3f.ensure(begins_at <= now.plus(limits.iat_skew), Cause::IssuedInFuture)?;
        }
        let is_typed = token_type == TokenType::AccessToken;
        if !is_typed {
            check_is_no_other_token(claims)?;
        }
        let id = match claims.member("jti") {
            // RFC 9068, section 2.2, requires it; other providers may leave it out. A revocation can name the hash.
            None if !is_typed => hash.clone(),
            _ => token::id(claims, Step::S3j)?,
        };
        let client = ["client_id", "azp", "cid"]
            .into_iter()
            .find_map(|name| claims.text(name));
        if is_typed && (claims.text("client_id").is_none() || claims.text("sub").is_none()) {
            return Err(Step::S3b.claim("client_id", "a string, as sub is (RFC 9068, section 2.2)"));
        }
        let audience = token::audience(claims).ok_or_else(|| Step::S6c.deny(Cause::Audience))?;
        let holder = Holder::confirmed(claims, Step::S3l, hot_keys)?;
        check_names_one_key(claims, &holder)?;
        let users = Users {
            client: client.map(str::to_owned),
            actors: actors(claims)?,
        };
        let max_depth = self.delegation_depth.min(limits.delegation_depth);
        let claims = Claims {
            id,
            issued_at,
            expires_at,
            max_depth: if holder.key().is_some() { max_depth } else { 0 },
            holder,
            audience: Some(audience),
            depth: 0,
            capabilities: Some(self.capabilities(claims)?),
            hash,
        };
        Ok((claims, users))
    }

    /// What the token's scopes and authorization details grant together.
    fn capabilities(&self, claims: &Object<'_>) -> Result<Capabilities, Denial> {
        let scopes = self.scopes_of(claims)?;
        let mut granted: Vec<Capabilities> = scopes
            .into_iter()
            .filter_map(|scope| self.scopes.get(scope).cloned())
            .collect();
        match claims.member("authorization_details") {
            None => {}
            Some(Json::Array(details)) => granted.append(&mut self.details.read(details)?),
            Some(_) => return Err(Step::S3m.claim("authorization_details", "an array (RFC 9396, section 9.1)")),
        }
        Ok(Capabilities::any_of(granted))
    }

    /// The token's scopes, without repetitions.
    fn scopes_of<'c>(&self, claims: &'c Object<'_>) -> Result<Vec<&'c str>, Denial> {
        let name = self.scope_claim.name();
        let wrong = || Step::S3m.claim(name, "names separated by spaces, or an array of names");
        let mut scopes: Vec<&str> = match claims.member(name) {
            None => Vec::new(),
            Some(Json::String(names)) => names.split(' ').filter(|name| !name.is_empty()).collect(),
            Some(Json::Array(names)) => names
                .iter()
                .map(Json::as_str)
                .collect::<Option<_>>()
                .ok_or_else(wrong)?,
            Some(_) => return Err(wrong()),
        };
        sort(&mut scopes);
        scopes.dedup();
        Ok(scopes)
    }
}

/// Other tokens of a provider have the same key, and no media type tells them apart: ID tokens (OpenID Connect Core),
/// refresh tokens of Keycloak (payload member `typ`), and those of Cognito (`token_use`). RFC 8725, section 3.12.
fn check_is_no_other_token(claims: &Object<'_>) -> Result<(), Denial> {
    let no_access_token = |claim| Err(Step::S3a.claim(claim, "absent or that of an access token"));
    for claim in ["nonce", "at_hash", "c_hash", "s_hash", "events"] {
        if claims.member(claim).is_some() {
            return no_access_token(claim);
        }
    }
    let is_one_of = |claim: &str, names: &[&str]| match claims.member(claim) {
        None => true,
        Some(json) => json
            .as_str()
            .is_some_and(|found| names.iter().any(|name| found.eq_ignore_ascii_case(name))),
    };
    if !is_one_of("typ", &["Bearer", "DPoP"]) {
        return no_access_token("typ");
    }
    if !is_one_of("token_use", &["access"]) {
        return no_access_token("token_use");
    }
    Ok(())
}

/// If `cnf` has a thumbprint beside a key (RFC 9449, section 6.1), it is that key's.
fn check_names_one_key(claims: &Object<'_>, holder: &Holder) -> Result<(), Denial> {
    let named = claims.object("cnf").and_then(|cnf| cnf.member("jkt"));
    let own = holder.thumbprint().map(|thumbprint| thumbprint.to_string());
    if named.is_none_or(|named| named.as_str() == own.as_deref()) {
        return Ok(());
    }
    Err(Step::S3l.claim("cnf", "one key: \"jkt\" must be the thumbprint of \"jwk\""))
}

/// `act` (RFC 8693, section 4.1), from the present actor to the first one.
fn actors(claims: &Object<'_>) -> Result<Vec<String>, Denial> {
    let mut actors = Vec::new();
    let mut next = claims.member("act");
    while let Some(json) = next {
        let wrong = || Step::S3b.claim("act", "an object with a string \"sub\", nested at most 8 times");
        let actor = json
            .as_object()
            .filter(|_| actors.len() < MAX_ACTORS)
            .ok_or_else(wrong)?;
        actors.push(
            actor
                .text("sub")
                .filter(|name| !name.is_empty())
                .ok_or_else(wrong)?
                .to_owned(),
        );
        next = actor.member("act");
    }
    Ok(actors)
}

/// Actors of a token.
const MAX_ACTORS: usize = 8;
