//! What clients and services ask for without a person: pushed requests (RFC 9126), tokens, their revocation (RFC 7009) and
//! state (RFC 7662), metadata (RFC 8414) and keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json as JsonBody};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::json::Json;
use credence_delegation::mint::{self, AccessTokenGrant, Binding, RootGrant};
use credence_delegation::{Algorithms, Limits, PublicKey, Thumbprint, UnixTime, jws};
use credence_runtime::metrics::count;
use credence_server::Peer;
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::app::{App, PUSHED_LIFE, REQUEST_URI, network, now};
use crate::client_authentication::{authenticate, proved_key};
use crate::clients::{Authentication, Client};
use crate::codes;
use crate::error::{Code, OauthError};
use crate::grants::{Credential, Grant, Issued, Owner, Presented, Refusal};
use crate::keys::Keys;
use crate::parameters::Parameters;
use crate::plane::PlaneError;
use crate::request::{AuthorizationRequest, RequestError};
use crate::store::StoreError;

/// `GET /.well-known/oauth-authorization-server`
pub(crate) async fn metadata(State(app): State<Arc<App>>) -> Response {
    let algorithms = ["Ed25519", "EdDSA", "ES256"];
    let of_assertions = ["Ed25519", "EdDSA", "ES256", "RS256", "PS256"];
    let mut methods = vec!["none", "private_key_jwt"];
    if app.has_certificates {
        methods.push("tls_client_auth");
    }
    let scopes: Vec<&String> = app.scopes.keys().collect();
    let document = json!({
        "issuer": app.url,
        "authorization_endpoint": app.endpoint("/authorize"),
        "pushed_authorization_request_endpoint": app.endpoint("/par"),
        "token_endpoint": app.endpoint("/token"),
        "revocation_endpoint": app.endpoint("/revoke"),
        "introspection_endpoint": app.endpoint("/introspect"),
        "jwks_uri": app.endpoint("/jwks"),
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "token_endpoint_auth_signing_alg_values_supported": of_assertions,
        "revocation_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_signing_alg_values_supported": of_assertions,
        "introspection_endpoint_auth_methods_supported": methods[1..],
        "introspection_endpoint_auth_signing_alg_values_supported": of_assertions,
        "dpop_signing_alg_values_supported": algorithms,
        "authorization_details_types_supported": ["attenuating_agent_token"],
        "authorization_response_iss_parameter_supported": true,
        "client_id_metadata_document_supported": true,
        "tls_client_certificate_bound_access_tokens": app.has_certificates,
        "scopes_supported": scopes,
        "aat_issuer": true,
    });
    public(JsonBody(document).into_response())
}

/// `GET /jwks`
pub(crate) async fn jwks(State(app): State<Arc<App>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/jwk-set+json")];
    public((headers, app.keys.now().jwks(now())).into_response())
}

/// Anyone may read it, and caches may keep it for some minutes.
fn public(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

/// `POST /par`
pub(crate) async fn push(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failed> {
    let now = now();
    let parameters = form(&headers, &body)?;
    let client = authenticate(&app, &peer, &parameters, now).await?;
    if parameters.one("request_uri").is_some() {
        return Err(OauthError::invalid_request("a pushed request has no request_uri").into());
    }
    let request = AuthorizationRequest::read(client, &parameters, &app.scopes);
    let mut request = request.map_err(|error| match error {
        RequestError::Page(error) | RequestError::Client { error, .. } => error,
    })?;
    // A proof here binds the code, too (RFC 9449, section 10.1).
    let proved = proved_key(&app, &peer, proof(&headers)?, "/par", now)?;
    match (&request.dpop_jkt, proved) {
        (Some(named), Some(proved)) if *named != proved => {
            return Err(Code::InvalidDpopProof
                .with("dpop_jkt is not the key of the proof")
                .into());
        }
        (None, proved) => request.dpop_jkt = proved,
        _ => {}
    }
    let name = app.pushed.keep(network(&peer), Arc::new(request));
    let answer = json!({"request_uri": format!("{REQUEST_URI}{name}"), "expires_in": PUSHED_LIFE.as_secs()});
    Ok(private((StatusCode::CREATED, JsonBody(answer)).into_response()))
}

/// `POST /token`
pub(crate) async fn token(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failed> {
    let now = now();
    let parameters = form(&headers, &body)?;
    let client = authenticate(&app, &peer, &parameters, now).await?;
    let proved = proved_key(&app, &peer, proof(&headers)?, "/token", now)?;
    let keys = app.keys.now();
    let (id, by) = credential(&keys, &parameters)?;
    let grant = app.grants.find(id)?.filter(|grant| grant.client == client.id);
    let mut grant =
        grant.ok_or_else(|| Code::InvalidGrant.with("it is unknown, has expired, or is another client's"))?;
    let tools = grant.tools().map_err(|error| broken(&error))?;
    let terms = app.policy.terms_now(&grant.rules, &client.id, &tools, &grant.audience);
    let terms = terms.ok_or_else(|| Code::InvalidGrant.with("policy no longer allows it; ask the person again"))?;
    grant.bearer &= terms.bearer;
    let holder = holder(&client, &peer, &grant, &parameters, proved.as_deref())?;
    let audience = audience(&grant, &parameters)?;
    check_scope(&grant, &parameters)?;
    let signer = keys.signing(now).key.public().thumbprint().to_string();
    let known: Vec<String> = [Some(signer), proved.clone()].into_iter().flatten().collect();
    if grant.withdrawn.is_none() && !app.still_counts(id, &grant, known).await? {
        app.grants.withdraw(id, Owner::Log, now).await?;
        return Err(Code::InvalidGrant.with("it was revoked").into());
    }
    let presented = Presented {
        grant: id,
        client: client.id.clone(),
        by,
        proved,
        is_public: matches!(client.authentication, Authentication::None),
        token_seconds: terms.token_seconds,
        now,
    };
    let issued = app.grants.redeem(presented).await?;
    let mut issued = issued.map_err(|refusal| match refusal {
        Refusal::TooMany => Code::TemporarilyUnavailable.with(refusal.to_string()),
        _ => Code::InvalidGrant.with(refusal.to_string()),
    })?;
    issued.grant.depth = issued.grant.depth.min(terms.depth);
    let token = sign(&app, &keys, &issued, &audience, &holder)?;
    count(&app.metrics.tokens, [("type", holder.token_type())]);
    let mut answer = json!({
        "access_token": token,
        "token_type": holder.token_type(),
        "expires_in": issued.expires_at.saturating_sub(issued.issued_at),
        "refresh_token": codes::refresh_token(&keys, id, issued.refresh),
        "authorization_details": [{"type": "attenuating_agent_token", "tools": issued.grant.tools}],
    });
    if let Some(scope) = &issued.grant.scope {
        answer["scope"] = scope.as_str().into();
    }
    Ok(private(JsonBody(answer).into_response()))
}

/// Who will use a token.
#[derive(Debug)]
enum Holder {
    /// The holder of this key presents it, and may hand it on (draft section 6.1).
    Delegation(Box<PublicKey>),
    AccessToken(Binding),
}

// === impl Holder ===

impl Holder {
    fn token_type(&self) -> &'static str {
        match self {
            Self::Delegation(_) => "aat",
            Self::AccessToken(Binding::Jkt(_)) => "DPoP",
            Self::AccessToken(Binding::Certificate(_) | Binding::Bearer) => "Bearer",
        }
    }
}

/// The code or refresh token.
fn credential(keys: &Keys, parameters: &Parameters) -> Result<(Uuid, Credential), OauthError> {
    let unknown = || Code::InvalidGrant.with("it is unknown, has expired, or is another client's");
    match parameters.one("grant_type") {
        Some("authorization_code") => {
            let code = parameters
                .one("code")
                .ok_or_else(|| OauthError::invalid_request("code is missing"))?;
            let verifier = parameters.one("code_verifier");
            let verifier = verifier.ok_or_else(|| OauthError::invalid_request("code_verifier is missing"))?;
            let by = Credential::Code {
                challenge: URL_SAFE_NO_PAD.encode(Sha256::digest(verifier)),
                redirect_uri: parameters.one("redirect_uri").map(str::to_owned),
            };
            Ok((codes::grant_of_code(keys, code).ok_or_else(unknown)?, by))
        }
        Some("refresh_token") => {
            let token = parameters.one("refresh_token");
            let token = token.ok_or_else(|| OauthError::invalid_request("refresh_token is missing"))?;
            let (grant, number) = codes::grant_of_refresh_token(keys, token).ok_or_else(unknown)?;
            Ok((grant, Credential::Refresh(number)))
        }
        Some(_) => Err(Code::UnsupportedGrantType.with("only authorization_code and refresh_token are supported")),
        None => Err(OauthError::invalid_request("grant_type is missing")),
    }
}

/// What the token is bound to: `req_cnf` (draft section 6.1), the proved key, the certificate, or nothing.
fn holder(
    client: &Client,
    peer: &Peer,
    grant: &Grant,
    parameters: &Parameters,
    proved: Option<&str>,
) -> Result<Holder, OauthError> {
    if let Some(confirmation) = parameters.one("req_cnf") {
        let wrong = |_| OauthError::invalid_request("req_cnf is no JSON object with a public key as jwk");
        let json = Json::parse(confirmation.as_bytes()).map_err(|_| wrong(()))?;
        let jwk = json
            .as_object()
            .and_then(|object| object.member("jwk"))
            .ok_or_else(|| wrong(()))?;
        let key = PublicKey::from_jwk(jwk).map_err(|_| wrong(()))?;
        if proved != Some(key.thumbprint().to_string().as_str()) {
            return Err(OauthError::invalid_request(
                "show that you hold the key of req_cnf: send a DPoP proof that it has signed",
            ));
        }
        return Ok(Holder::Delegation(Box::new(key)));
    }
    if let Some(thumbprint) = proved.and_then(Thumbprint::parse) {
        return Ok(Holder::AccessToken(Binding::Jkt(thumbprint)));
    }
    if let (Authentication::Certificate(_), Some(certificate)) = (&client.authentication, peer.certificate()) {
        return Ok(Holder::AccessToken(Binding::Certificate(certificate.digest)));
    }
    match grant.bearer {
        true => Ok(Holder::AccessToken(Binding::Bearer)),
        false => Err(OauthError::invalid_request(
            "the token must be bound to a key: send a DPoP proof, or authenticate with a certificate",
        )),
    }
}

/// The services that the client asks for, out of those that were granted.
fn audience(grant: &Grant, parameters: &Parameters) -> Result<BTreeSet<String>, OauthError> {
    let asked: BTreeSet<String> = parameters.all("resource").map(str::to_owned).collect();
    match (asked.is_empty(), asked.is_subset(&grant.audience)) {
        (true, _) => Ok(grant.audience.clone()),
        (false, true) => Ok(asked),
        (false, false) => Err(Code::InvalidTarget.with("resource is none of those that were granted")),
    }
}

/// A token has all that was granted, so that less can be asked for, but is not given (RFC 6749, section 3.3).
fn check_scope(grant: &Grant, parameters: &Parameters) -> Result<(), OauthError> {
    let granted = grant.scope.as_deref().unwrap_or_default();
    let is_granted = |name: &str| matches!(name, "" | "offline_access") || granted.split(' ').any(|one| one == name);
    let asked = parameters.one("scope").unwrap_or_default();
    match asked.split(' ').all(is_granted) {
        true => Ok(()),
        false => Err(Code::InvalidScope.with("scope has a name that was not granted")),
    }
}

fn broken(error: &dyn std::fmt::Display) -> Failed {
    tracing::error!(%error, "a token could not be made");
    Failed(Code::ServerError.with("the token could not be made; the issuer's log says why"))
}

fn sign(
    app: &App,
    keys: &Keys,
    issued: &Issued,
    audience: &BTreeSet<String>,
    holder: &Holder,
) -> Result<String, Failed> {
    let grant = &issued.grant;
    let time = |seconds: u64| UnixTime(i64::try_from(seconds).unwrap_or(i64::MAX));
    let tools = grant.tools().map_err(|error| broken(&error))?.to_value();
    let (issued_at, expires_at) = (time(issued.issued_at), time(issued.expires_at));
    let signer = keys.signing(issued.issued_at);
    let limits = Limits::default();
    let audience = audience.iter().cloned().collect();
    let signed = match holder {
        Holder::Delegation(key) => {
            let contents = mint::Grant {
                id: issued.id.clone(),
                issued_at,
                expires_at,
                holder: (**key).clone(),
                holder_certificate: None,
                holder_spiffe_id: None,
                audience,
                max_depth: grant.depth,
                tools,
            };
            let root = RootGrant {
                grant: contents,
                issuer: app.url.clone(),
                subject: Some(grant.subject.clone()),
                epoch: Some(grant.epochs.own),
                agent_name: None,
            };
            mint::root(&root, signer, &limits)
        }
        Holder::AccessToken(binding) => {
            let contents = AccessTokenGrant {
                id: issued.id.clone(),
                issued_at,
                expires_at,
                issuer: app.url.clone(),
                subject: grant.subject.clone(),
                client: grant.client.clone(),
                audience,
                epoch: Some(grant.epochs.own),
                tools,
                binding: *binding,
            };
            mint::access_token(&contents, signer, &limits)
        }
    };
    signed.map_err(|error| broken(&error))
}

/// `POST /revoke`
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failed> {
    let parameters = form(&headers, &body)?;
    let client = authenticate(&app, &peer, &parameters, now()).await?;
    let token = parameters
        .one("token")
        .ok_or_else(|| OauthError::invalid_request("token is missing"))?;
    let keys = app.keys.now();
    let grant = codes::grant_of_refresh_token(&keys, token).map(|(grant, _)| grant);
    let grant = grant.or_else(|| own(&app, &keys, token).and_then(|token| Grant::of_token(&token.id)));
    // The answer does not say whether there was such a token (RFC 7009, section 2.2).
    if let Some(id) = grant
        && app.grants.withdraw(id, Owner::Client(client.id.clone()), now()).await?
        && let Err(error) = crate::tasks::revoke(&app, id).await
    {
        tracing::warn!(%error, "the revocation of a grant has to be repeated");
    }
    Ok(private(StatusCode::OK.into_response()))
}

/// `POST /introspect`
pub(crate) async fn introspect(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failed> {
    let now = now();
    let parameters = form(&headers, &body)?;
    let client = authenticate(&app, &peer, &parameters, now).await?;
    if !client.introspects {
        return Err(Code::UnauthorizedClient
            .with("this client may not ask about tokens")
            .into());
    }
    let token = parameters
        .one("token")
        .ok_or_else(|| OauthError::invalid_request("token is missing"))?;
    let inactive = || private(JsonBody(json!({"active": false})).into_response());
    let Some(own) = own(&app, &app.keys.now(), token).filter(|own| own.expires_at > now) else {
        return Ok(inactive());
    };
    let id = Grant::of_token(&own.id).unwrap_or_default();
    let Some(grant) = app.grants.find(id)? else {
        return Ok(inactive());
    };
    if grant.withdrawn.is_some() || !app.still_counts(id, &grant, own.keys).await? {
        return Ok(inactive());
    }
    let mut answer = json!({
        "active": true,
        "iss": app.url,
        "sub": grant.subject,
        "client_id": grant.client,
        "jti": own.id,
        "iat": own.issued_at,
        "exp": own.expires_at,
        "aud": own.audience,
        "authorization_details": [{"type": "attenuating_agent_token", "tools": grant.tools}],
    });
    // Without it, a service would take a stolen token for a bearer (RFC 9449, section 6.2; RFC 8705, section 3.2).
    if let Some(confirmation) = own.confirmation {
        answer["cnf"] = json!(confirmation);
    }
    Ok(private(JsonBody(answer).into_response()))
}

/// A token of this issuer. It may be revoked.
struct OwnToken {
    id: String,
    issued_at: u64,
    expires_at: u64,
    /// Thumbprints: the issuer's key, then the holder's.
    keys: Vec<String>,
    /// `aud`, and `cnf` if it is bound to a key.
    audience: Option<Box<RawValue>>,
    confirmation: Option<Box<RawValue>>,
}

fn own(app: &App, keys: &Keys, token: &str) -> Option<OwnToken> {
    let verified = keys.public(now()).find_map(|key| {
        let payload = ["aat+jwt", "at+jwt"]
            .into_iter()
            .find_map(|typ| jws::verify(token, Some(typ), &key, &Algorithms::all()).ok())?;
        Some((key.thumbprint().to_string(), payload))
    });
    let (signed_by, payload) = verified?;
    let json = Json::parse(&payload).ok()?;
    let claims = json.as_object().filter(|claims| claims.text("iss") == Some(&app.url))?;
    let time = |name: &str| claims.integer(name).and_then(|time| u64::try_from(time).ok());
    let written = |name: &str| {
        let text = claims.member(name).and_then(credence_delegation::canonicalize)?;
        RawValue::from_string(text).ok()
    };
    let confirmation = claims.object("cnf");
    let holder = confirmation.and_then(|cnf| match (cnf.text("jkt"), cnf.member("jwk")) {
        (Some(thumbprint), _) => Some(thumbprint.to_owned()),
        (None, Some(jwk)) => PublicKey::from_jwk(jwk).ok().map(|key| key.thumbprint().to_string()),
        (None, None) => None,
    });
    Some(OwnToken {
        id: claims.text("jti")?.to_owned(),
        issued_at: time("iat")?,
        expires_at: time("exp")?,
        keys: [signed_by].into_iter().chain(holder).collect(),
        audience: written("aud"),
        confirmation: written("cnf"),
    })
}

/// The parameters of a body.
fn form(headers: &HeaderMap, body: &[u8]) -> Result<Parameters, OauthError> {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim();
    if !media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(OauthError::invalid_request("send application/x-www-form-urlencoded"));
    }
    Parameters::parse(body)
}

/// The DPoP proof, if there is one.
fn proof(headers: &HeaderMap) -> Result<Option<&str>, OauthError> {
    let mut proofs = headers.get_all("dpop").iter();
    let wrong = || Code::InvalidDpopProof.with("send one DPoP header");
    match (proofs.next(), proofs.next()) {
        (None, _) => Ok(None),
        (Some(one), None) => one.to_str().map(Some).map_err(|_| wrong()),
        (Some(_), Some(_)) => Err(wrong()),
    }
}

/// `OPTIONS` of an endpoint that clients in browsers use. They send no cookies, which count nowhere here.
pub(crate) async fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "content-type, dpop"),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

fn private(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// An error as RFC 6749, section 5.2, has it.
#[derive(Debug)]
pub(crate) struct Failed(OauthError);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let Self(OauthError { code, description }) = self;
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let body = json!({"error": code.name(), "error_description": description});
        let mut response = private((status, JsonBody(body)).into_response());
        let headers = response.headers_mut();
        match code {
            Code::TemporarilyUnavailable => _ = headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2")),
            // RFC 6749, section 5.2, for clients that send `Authorization`, although none has a secret.
            Code::InvalidClient => {
                let challenge = HeaderValue::from_static("Basic realm=\"clients have no secrets here\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            _ => {}
        }
        response
    }
}

impl From<OauthError> for Failed {
    fn from(error: OauthError) -> Self {
        Self(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the database does not answer");
        Self(Code::TemporarilyUnavailable.with("try again"))
    }
}

impl From<PlaneError> for Failed {
    fn from(error: PlaneError) -> Self {
        tracing::warn!(%error, "a call to the control plane failed");
        Self(Code::TemporarilyUnavailable.with("it is not known what is revoked; try again"))
    }
}
