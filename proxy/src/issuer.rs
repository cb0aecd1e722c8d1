//! The issuer as its OAuth client sees it: authorization code with PKCE (RFC 7636), pushed requests (RFC 9126), and DPoP
//! (RFC 9449), which binds what it gives to the credential's key.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use credence_agent::terminal::{printable, shortened};
use credence_delegation::mint::{self, DpopRequest};
use credence_runtime::outbound::is_safe;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Request, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::clock::now;
use crate::outbound::{Body, ConnectError, Connections, connections, fetched, whole};
use crate::settings::{IssuerSettings, TokenKind};
use crate::signer::{SignError, Signer};

/// An OAuth client of one issuer. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Issuer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: IssuerSettings,
    connections: Connections,
    signer: Signer,
}

/// Where the issuer answers (RFC 8414).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    pushed_authorization_request_endpoint: String,
}

/// A person is asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The page where they decide.
    pub(crate) page: String,
    pub(crate) state: String,
    verifier: String,
    redirect_uri: String,
}

/// What the issuer gives (RFC 6749, section 5.1).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Tokens {
    pub(crate) access_token: String,
    #[serde(default)]
    pub(crate) refresh_token: Option<String>,
    /// `aat`, or `DPoP` for an access token that is bound to the key.
    token_type: String,
    /// Seconds.
    #[serde(default)]
    pub(crate) expires_in: Option<u64>,
}

/// Why the issuer gave nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IssuerError {
    /// The person, or the policy, no longer grants it.
    #[error("the issuer refuses: {error}{}", description.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused { error: String, description: Option<String> },
    /// It does not answer as it should.
    #[error("the issuer: {0}")]
    Answer(String),
    #[error(transparent)]
    Sign(#[from] SignError),
}

impl IssuerError {
    /// Whether the grant has ended (RFC 6749, section 5.2).
    pub(crate) fn ends_grant(&self) -> bool {
        matches!(self, Self::Refused { error, .. } if error == "invalid_grant")
    }
}

// === impl Issuer ===

impl Issuer {
    pub(crate) fn new(settings: &IssuerSettings, signer: Signer) -> Result<Self, ConnectError> {
        Ok(Self(Arc::new(Inner {
            settings: settings.clone(),
            connections: connections(&settings.url, settings.ca.as_deref(), None, false)?,
            signer,
        })))
    }

    /// Begins to ask a person, who returns to this address.
    pub(crate) async fn ask(&self, redirect_uri: &str) -> Result<Asked, IssuerError> {
        let metadata = self.metadata().await?;
        let settings = &self.0.settings;
        let (state, verifier) = (secret(), secret());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let details = format!(
            r#"[{{"type":"attenuating_agent_token","del_max_depth":{},"tools":{}}}]"#,
            settings.depth,
            settings.tools.get()
        );
        let mut fields = vec![
            ("client_id", settings.client_id.as_str()),
            ("response_type", "code"),
            ("redirect_uri", redirect_uri),
            ("state", &state),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("authorization_details", &details),
        ];
        fields.extend(settings.audience.iter().map(|name| ("resource", name.as_str())));
        #[derive(Deserialize)]
        struct Pushed {
            request_uri: String,
        }
        let endpoint = &metadata.pushed_authorization_request_endpoint;
        let Pushed { request_uri } = self.post(endpoint, &fields).await?;
        let joint = if metadata.authorization_endpoint.contains('?') {
            '&'
        } else {
            '?'
        };
        let query = form(&[("client_id", &settings.client_id), ("request_uri", &request_uri)]);
        Ok(Asked {
            page: format!("{}{joint}{query}", metadata.authorization_endpoint),
            state,
            verifier,
            redirect_uri: redirect_uri.to_owned(),
        })
    }

    /// Redeems the code that the person came back with.
    pub(crate) async fn redeem(&self, asked: &Asked, code: &str) -> Result<Tokens, IssuerError> {
        self.tokens(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", &asked.verifier),
            ("redirect_uri", &asked.redirect_uri),
        ])
        .await
    }

    pub(crate) async fn refresh(&self, refresh_token: &str) -> Result<Tokens, IssuerError> {
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        self.tokens(&fields).await
    }

    pub(crate) fn settings(&self) -> &IssuerSettings {
        &self.0.settings
    }

    async fn tokens(&self, fields: &[(&str, &str)]) -> Result<Tokens, IssuerError> {
        let metadata = self.metadata().await?;
        let confirmation = format!(r#"{{"jwk":{}}}"#, self.0.signer.public().to_jwk());
        let mut fields = fields.to_vec();
        fields.push(("client_id", &self.0.settings.client_id));
        // A delegation to this key (draft section 6.1), or else an access token that DPoP binds to it.
        if self.settings().token == TokenKind::Delegation {
            fields.push(("req_cnf", &confirmation));
        }
        let tokens: Tokens = self.post(&metadata.token_endpoint, &fields).await?;
        // RFC 9449, section 5: another type would be bound to no key.
        let is_bound = tokens.token_type.eq_ignore_ascii_case("dpop");
        match self.settings().token == TokenKind::Delegation || is_bound {
            true => Ok(tokens),
            false => Err(wrong("it gives an access token that DPoP does not bind")),
        }
    }

    /// Where it answers.
    pub(crate) async fn metadata(&self) -> Result<Metadata, IssuerError> {
        let url = format!("{}{WELL_KNOWN}", self.settings().url);
        let request = Request::get(&url).header(ACCEPT, JSON).body(whole(""));
        let answer = self.fetch(request).await?;
        let metadata: Result<Metadata, _> = serde_json::from_slice(answer.body());
        let metadata =
            metadata.map_err(|_| wrong(format!("{url} has no metadata of an issuer; is `issuer.url` right?")))?;
        if metadata.issuer != self.settings().url {
            return Err(wrong(format!("its metadata is that of {}", metadata.issuer)));
        }
        let endpoints = [
            &metadata.authorization_endpoint,
            &metadata.token_endpoint,
            &metadata.pushed_authorization_request_endpoint,
        ];
        if let Some(url) = endpoints.into_iter().find(|url| !is_safe(url)) {
            return Err(wrong(format!("its endpoint {url} is not at an https URL")));
        }
        Ok(metadata)
    }

    /// Posts a form, with a proof of the key; again with a nonce if the issuer asks for one (RFC 9449, section 8).
    async fn post<T: DeserializeOwned>(&self, url: &str, fields: &[(&str, &str)]) -> Result<T, IssuerError> {
        let body = form(fields);
        let mut nonce = None;
        loop {
            let request = DpopRequest {
                id: &Uuid::now_v7().to_string(),
                issued_at: now(),
                method: "POST",
                uri: url,
                access_token: None,
                nonce: nonce.as_deref(),
            };
            let proof = self
                .0
                .signer
                .sign(&mint::dpop(&request, &self.0.signer.public()))
                .await?;
            let request = Request::post(url).header("dpop", proof).header(ACCEPT, JSON);
            let request = request.header(CONTENT_TYPE, FORM).body(whole(body.clone()));
            let response = self.fetch(request).await?;
            if response.status().is_success() {
                return parse(response.body());
            }
            let problem = serde_json::from_slice::<Problem>(response.body());
            let problem = problem.map_err(|_| wrong(format!("it answers {}", response.status())))?;
            let given = response
                .headers()
                .get("dpop-nonce")
                .and_then(|value| value.to_str().ok());
            if problem.error == "use_dpop_nonce" && nonce.is_none() && given.is_some() {
                nonce = given.map(str::to_owned);
                continue;
            }
            let text = |said: String| printable(&shortened(&said));
            return Err(IssuerError::Refused {
                error: text(problem.error),
                description: problem.error_description.map(text),
            });
        }
    }

    async fn fetch(&self, request: http::Result<Request<Body>>) -> Result<Response<Bytes>, IssuerError> {
        let request = request.map_err(wrong)?;
        let fetched = fetched(&self.0.connections, request, (MAX_ANSWER_BYTES, TIMEOUT));
        fetched.await.map_err(IssuerError::Answer)
    }
}

/// An OAuth error (RFC 6749, section 5.2).
#[derive(Deserialize)]
struct Problem {
    error: String,
    #[serde(default)]
    error_description: Option<String>,
}

/// The contents are not shown: they may have tokens.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, IssuerError> {
    serde_json::from_slice(body).map_err(|_| wrong("its answer has not the members that it must have"))
}

fn wrong(problem: impl ToString) -> IssuerError {
    IssuerError::Answer(printable(&shortened(&problem.to_string())))
}

fn form(fields: &[(&str, &str)]) -> String {
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(fields);
    form.finish()
}

/// 256 random bits.
fn secret() -> String {
    URL_SAFE_NO_PAD.encode([Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()].concat())
}

const WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";
const TIMEOUT: Duration = Duration::from_secs(15);
const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MAX_ANSWER_BYTES: usize = 256 << 10;
