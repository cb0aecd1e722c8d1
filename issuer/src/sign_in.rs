//! Sign-in of people at their own identity provider (OpenID Connect Core 1.0, with the code flow and PKCE).
//!
//! | module | its one job |
//! |---|---|
//! | `provider` | requests to the provider, and what is cached of it |
//! | `error` | why nobody is signed in |
//! | `person` | a person from the claims of an ID token |

mod error;
mod person;
mod provider;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use credence_runtime::outbound::is_safe;
use credence_runtime::settings::{SettingsError, present};
use credence_runtime::time::unix_seconds;
use openidconnect::core::{
    CoreAuthenticationFlow, CoreClient, CoreClientAuthMethod, CoreErrorResponseType, CoreIdToken, CoreIdTokenClaims,
    CoreIdTokenVerifier, CoreJwsSigningAlgorithm, CoreTokenResponse,
};
use openidconnect::{
    AuthType, AuthenticationContextClass, AuthorizationCode, ClaimsVerificationError, ClientId, ClientSecret,
    CsrfToken, EndpointMaybeSet, EndpointNotSet, EndpointSet, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier,
    RedirectUrl, RequestTokenError, Scope, SignatureVerificationError, StandardErrorResponse, TokenResponse as _,
};
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use self::error::SignInError;
use self::error::{causes, shown};
use self::person::ClaimNames;
pub(crate) use self::person::{Demanded, Person};
use self::provider::{HttpError, Metadata, Provider};

/// The OpenID Connect provider where people sign in.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityProviderSettings {
    /// Its issuer URL. Its metadata is below, at `/.well-known/openid-configuration`.
    #[schemars(length(min = 1, max = 1024))]
    pub issuer: String,
    /// The issuer's own `client_id` there.
    #[schemars(length(min = 1, max = 256))]
    pub client_id: String,
    /// File with the client secret. Default: a public client, with PKCE only.
    #[serde(default, deserialize_with = "present")]
    pub client_secret_file: Option<PathBuf>,
    /// Scopes to ask for, besides `openid` and `profile`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    pub scopes: Vec<String>,
    /// The ID token's claim that names the person, and is never another's later. Default: `sub`. With Entra ID, `oid`.
    #[serde(default, deserialize_with = "present")]
    pub subject_claim: Option<String>,
    /// The ID token's claim with the person's groups: a list of names, or one name. Default: `groups`.
    #[serde(default, deserialize_with = "present")]
    pub groups_claim: Option<String>,
    /// The ID token's claim with the person's name. Default: `name`.
    #[serde(default, deserialize_with = "present")]
    pub name_claim: Option<String>,
    /// PEM file: CAs. Default: the system's.
    #[serde(default, deserialize_with = "present")]
    pub ca: Option<PathBuf>,
}

/// The provider. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct IdentityProvider {
    provider: Arc<Provider>,
    own: Arc<OwnClient>,
}

/// What this issuer is to the provider, and how it reads its claims.
#[derive(Debug)]
struct OwnClient {
    id: ClientId,
    secret: Option<ClientSecret>,
    redirect_uri: RedirectUrl,
    scopes: BTreeSet<String>,
    claims: ClaimNames,
}

/// A sign-in that has begun.
#[derive(Debug)]
pub(crate) struct Begun {
    /// Where to send the browser.
    pub(crate) url: String,
    /// The `state` that the browser must bring back.
    pub(crate) state: String,
    pub(crate) pending: Pending,
}

/// What finishes a sign-in. It must be bound to the browser that began it.
#[derive(Debug)]
pub(crate) struct Pending {
    nonce: Nonce,
    verifier: PkceCodeVerifier,
    demanded: Demanded,
}

// === impl IdentityProviderSettings ===

impl IdentityProviderSettings {
    pub(crate) fn check(&self) -> Result<(), SettingsError> {
        self.issuer_url()?;
        let is_name = |text: &String| (1..=256).contains(&text.len()) && !text.chars().any(char::is_control);
        let is_scope = |text: &String| is_name(text) && text.bytes().all(|byte| byte.is_ascii_graphic());
        for (field, is_valid) in [
            ("client_id", is_name(&self.client_id)),
            ("subject_claim", self.subject_claim.as_ref().is_none_or(is_name)),
            ("groups_claim", self.groups_claim.as_ref().is_none_or(is_name)),
            ("name_claim", self.name_claim.as_ref().is_none_or(is_name)),
            ("scopes", self.scopes.len() <= 32 && self.scopes.iter().all(is_scope)),
        ] {
            if !is_valid {
                return Err(at(field, "empty, too long, or with characters that are not allowed"));
            }
        }
        Ok(())
    }

    fn issuer_url(&self) -> Result<IssuerUrl, SettingsError> {
        if !is_safe(&self.issuer) || self.issuer.contains(['?', '#', '@']) {
            return Err(at(
                "issuer",
                "write an https URL without a user, query and fragment; http is only for this machine",
            ));
        }
        IssuerUrl::new(self.issuer.clone()).map_err(|error| at("issuer", error))
    }
}

fn at(field: &str, problem: impl ToString) -> SettingsError {
    SettingsError::at(format!("identity_provider.{field}"), problem.to_string())
}

// === impl IdentityProvider ===

impl IdentityProvider {
    /// Reads the client secret. The provider is first asked when a person signs in, and has this long for each answer.
    pub(crate) fn new(
        settings: &IdentityProviderSettings,
        redirect_uri: &str,
        timeout: Duration,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let secret = settings.client_secret_file.as_deref().map(read_secret).transpose()?;
        let claim = |claim: &Option<String>, default: &str| claim.clone().unwrap_or_else(|| default.to_owned());
        // The library adds openid.
        let scopes = settings.scopes.iter().cloned().chain(["profile".to_owned()]);
        let scopes = scopes.filter(|scope| scope != "openid").collect();
        let own = OwnClient {
            id: ClientId::new(settings.client_id.clone()),
            secret,
            redirect_uri: RedirectUrl::new(redirect_uri.to_owned())
                .map_err(|error| SettingsError::at("url", error.to_string()))?,
            scopes,
            claims: ClaimNames {
                subject: claim(&settings.subject_claim, "sub"),
                groups: claim(&settings.groups_claim, "groups"),
                name: claim(&settings.name_claim, "name"),
            },
        };
        let provider = Provider::new(settings.issuer_url()?, settings.ca.as_deref(), timeout);
        Ok(Self {
            provider: Arc::new(provider.map_err(|error| at("ca", error))?),
            own: Arc::new(own),
        })
    }

    /// Begins a sign-in. May ask for the provider's metadata.
    pub(crate) async fn begin(&self, demanded: &Demanded) -> Result<Begun, SignInError> {
        let metadata = self.provider.metadata(MAX_AGE).await?;
        let client = self.own.client(&metadata)?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let mut request = client
            .authorize_url(
                CoreAuthenticationFlow::AuthorizationCode,
                CsrfToken::new_random,
                Nonce::new_random,
            )
            .add_scopes(self.own.scopes.iter().cloned().map(Scope::new))
            .set_pkce_challenge(challenge);
        if let Some(seconds) = demanded.max_age {
            request = request.set_max_age(Duration::from_secs(seconds.into()));
        }
        for acr in &demanded.acr {
            request = request.add_auth_context_value(AuthenticationContextClass::new(acr.clone()));
        }
        let (url, state, nonce) = request.url();
        Ok(Begun {
            url: url.into(),
            state: state.into_secret(),
            pending: Pending {
                nonce,
                verifier,
                demanded: demanded.clone(),
            },
        })
    }

    /// Redeems the code that the browser has brought with its `state`. `iss` is what it brought as such.
    pub(crate) async fn finish(
        &self,
        begun: Pending,
        code: String,
        iss: Option<String>,
    ) -> Result<Person, SignInError> {
        let metadata = self.provider.metadata(MAX_AGE).await?;
        // Before the code goes out: it may be another provider's (RFC 9207, section 2.4).
        match iss {
            Some(iss) if iss == **metadata.issuer() => {}
            Some(iss) => return Err(SignInError::OtherIssuer(shown(&iss))),
            None if metadata.additional_metadata().sends_iss() => {
                return Err(SignInError::OtherIssuer("missing".to_owned()));
            }
            None => {}
        }
        let Pending {
            nonce,
            verifier,
            demanded,
        } = begun;
        let client = self.own.client(&metadata)?;
        let redeemed = self.provider.call(move |http| {
            let request = client.exchange_code(AuthorizationCode::new(code.clone()));
            let request = request.map_err(|error| SignInError::Metadata(error.to_string()))?;
            let answer = request.set_pkce_verifier(verifier).request(http);
            answer.map_err(|error| refusal(&error, &code))
        });
        let redeemed: CoreTokenResponse = redeemed.await??;
        let token = redeemed
            .id_token()
            .ok_or_else(|| SignInError::IdToken("there is none".to_owned()))?;
        let claims = match self.own.verify(&metadata, token, &nonce) {
            Err(error) if names_unknown_key(&error) => {
                let newer = self.provider.metadata(KEY_INTERVAL).await?;
                self.own.verify(&newer, token, &nonce)
            }
            verified => verified,
        };
        let claims = claims.map_err(|error| SignInError::IdToken(shown(&causes(&error))))?;
        person::check_demanded(claims, &demanded, unix_seconds())?;
        person::read(claims, token, &self.own.claims)
    }
}

// === impl OwnClient ===

/// A client of a provider that has an authorization endpoint, and perhaps others.
type Client =
    CoreClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointMaybeSet, EndpointMaybeSet>;

impl OwnClient {
    fn client(&self, metadata: &Metadata) -> Result<Client, SignInError> {
        let (basic, post) = (
            CoreClientAuthMethod::ClientSecretBasic,
            CoreClientAuthMethod::ClientSecretPost,
        );
        // Without a list, it is client_secret_basic (OpenID Connect Discovery 1.0, section 3).
        let method = match metadata.token_endpoint_auth_methods_supported() {
            Some(methods) if self.secret.is_some() && !methods.contains(&basic) => {
                if !methods.contains(&post) {
                    let problem = "it accepts neither client_secret_basic nor client_secret_post, so the client secret \
                                   cannot be used";
                    return Err(SignInError::Metadata(problem.to_owned()));
                }
                AuthType::RequestBody
            }
            _ => AuthType::BasicAuth,
        };
        let client = CoreClient::from_provider_metadata(metadata.clone(), self.id.clone(), self.secret.clone());
        Ok(client.set_auth_type(method).set_redirect_uri(self.redirect_uri.clone()))
    }

    fn verify<'a>(
        &self,
        metadata: &Metadata,
        token: &'a CoreIdToken,
        nonce: &Nonce,
    ) -> Result<&'a CoreIdTokenClaims, ClaimsVerificationError> {
        let (id, issuer, keys) = (self.id.clone(), metadata.issuer().clone(), metadata.jwks().clone());
        // As a public client: the client secret is not a key for signatures.
        let verifier = CoreIdTokenVerifier::new_public_client(id, issuer, keys)
            .set_allowed_algs(ALGORITHMS)
            .set_issue_time_verifier_fn(|issued| person::check_issued(issued.timestamp(), unix_seconds()));
        let claims = token.claims(&verifier, nonce)?;
        match claims.authorized_party() {
            Some(party) if *party != self.id => {
                let problem = "azp is another client".to_owned();
                Err(ClaimsVerificationError::InvalidAudience(problem))
            }
            _ => Ok(claims),
        }
    }
}

/// Whether newer keys may verify the signature. A provider may give a new key the old one's name, or none.
fn names_unknown_key(error: &ClaimsVerificationError) -> bool {
    use SignatureVerificationError::{CryptoError, NoMatchingKey};
    matches!(
        error,
        ClaimsVerificationError::SignatureVerification(NoMatchingKey | CryptoError(_))
    )
}

/// Why the code gave no tokens. The library's own texts may quote the answer, and so the tokens.
fn refusal(
    error: &RequestTokenError<HttpError, StandardErrorResponse<CoreErrorResponseType>>,
    code: &str,
) -> SignInError {
    match error {
        RequestTokenError::ServerResponse(answer) => {
            let mut text = answer.to_string();
            if !code.is_empty() {
                text = text.replace(code, "…");
            }
            SignInError::Refused(shown(&text))
        }
        RequestTokenError::Request(error) => SignInError::TokenEndpoint(shown(&error.to_string())),
        RequestTokenError::Parse(error, _) => SignInError::TokenEndpoint(shown(&error.inner().to_string())),
        RequestTokenError::Other(problem) => SignInError::TokenEndpoint(shown(problem)),
    }
}

fn read_secret(path: &Path) -> Result<ClientSecret, SettingsError> {
    let failed = |problem: String| at("client_secret_file", format!("{}: {problem}", path.display()));
    let text = credence_storage::durable::read_small_file(path, MAX_SECRET_BYTES);
    let text = String::from_utf8(text.map_err(|error| failed(error.to_string()))?).unwrap_or_default();
    let secret = text.trim_end_matches(['\r', '\n']);
    match !secret.is_empty() && !secret.chars().any(char::is_control) {
        true => Ok(ClientSecret::new(secret.to_owned())),
        false => Err(failed("it must hold the client secret in one line".to_owned())),
    }
}

/// Never HMAC: a client secret is no signing key.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 4] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EdDsa,
];
/// How long metadata and keys count, and how soon they are read again if a key is missing.
const MAX_AGE: Duration = Duration::from_secs(3_600);
const KEY_INTERVAL: Duration = Duration::from_secs(10);
const MAX_SECRET_BYTES: u64 = 4 << 10;
