//! What people's browsers ask for: authorization requests, sign-in, consent, and the list of grants.
//!
//! Every form has a secret of its session, cookies are for this host only, and no page may be framed or run a script.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use credence_delegation::inspect::printable;
use credence_runtime::metrics::count;
use credence_server::Peer;
use serde_json::value::RawValue;
use url::{Host, Url};
use uuid::Uuid;

use crate::app::{
    App, CODE_SECONDS, Consent, Next, REQUEST_URI, SESSION_LIFE, SIGN_IN_LIFE, Session, SignIn, network, now,
};
use crate::choice::{Choice, Form, choose};
use crate::clients::ClientError;
use crate::codes;
use crate::error::{Code, OauthError};
use crate::events::{self, Event, Kind};
use crate::grants::{Code as IssuedCode, Grant, Owner};
use crate::memory::secret;
use crate::pages::{ConsentPage, ErrorPage, GrantView, GrantsPage, STYLE, tool_views};
use crate::parameters::Parameters;
use crate::plane::{Epochs, PlaneError, Progress, Use};
use crate::policy::{NoOffer, Offer};
use crate::request::{AuthorizationRequest, RequestError};
use crate::sign_in::{Demanded, Person, SignInError};
use crate::store::StoreError;
use crate::words;

/// A page instead of what was wanted.
#[derive(Debug)]
pub(crate) struct Refused {
    status: StatusCode,
    title: &'static str,
    text: String,
    code: Option<&'static str>,
}

/// `GET /authorize`
pub(crate) async fn authorize(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let parameters = Parameters::parse(query.unwrap_or_default().as_bytes())?;
    let id = parameters.one("client_id");
    let id = id.ok_or_else(|| Refused::request("client_id is missing".to_owned()))?;
    let request = match parameters.one("request_uri") {
        Some(uri) => {
            let pushed = uri.strip_prefix(REQUEST_URI).and_then(|name| app.pushed.take(name));
            let pushed = pushed.filter(|request| request.client.id == id);
            pushed.ok_or_else(|| {
                let text = "This request was already opened, or is older than 90 seconds. Go back to the program, and begin \
                            again.";
                Refused::request(text.to_owned())
            })?
        }
        None => {
            let client = app.clients.find(id, peer.address.ip()).await?;
            match AuthorizationRequest::read(client.clone(), &parameters, &app.scopes) {
                Ok(request) => Arc::new(request),
                Err(RequestError::Page(error)) => return Err(error.into()),
                // Anyone can publish a client's document. It must not make this server redirect people where it likes.
                Err(RequestError::Client { error, .. }) if client.host.is_some() => return Err(error.into()),
                Err(RequestError::Client {
                    redirect_uri,
                    state,
                    error,
                }) => {
                    return Ok(back_with_error(&app, (&redirect_uri, state.as_deref()), &error));
                }
            }
        }
    };
    match session(&app, &headers) {
        Some((cookie, session)) => offer(&app, &peer, &cookie, &session, request, false).await,
        None => {
            let next = Next::Consent {
                request,
                is_demanded: false,
            };
            begin_sign_in(&app, &peer, Demanded::default(), next).await
        }
    }
}

/// Shows what the person may grant.
async fn offer(
    app: &App,
    peer: &Peer,
    cookie: &str,
    session: &Session,
    request: Arc<AuthorizationRequest>,
    is_demanded: bool,
) -> Result<Response, Refused> {
    let person = &session.person;
    let offer = match app.policy.offer(&person.groups, &request.client.id, &request.asked) {
        Ok(offer) => offer,
        Err(refused) => return refuse_by_policy(app, session, &request, &refused).await,
    };
    if !offer.terms.accept(age(person), person.acr.as_deref()) {
        if is_demanded {
            let text = "This needs another way of signing in than the one that you have used.".to_owned();
            return Err(Refused::new(StatusCode::FORBIDDEN, "That is not enough", text));
        }
        let demanded = Demanded {
            max_age: offer.terms.max_age,
            acr: offer.terms.acr.iter().flatten().cloned().collect(),
        };
        let next = Next::Consent {
            request,
            is_demanded: true,
        };
        return begin_sign_in(app, peer, demanded, next).await;
    }
    let consent = Consent {
        request,
        offer,
        session: cookie.to_owned(),
    };
    let consent = Arc::new(consent);
    let name = app.consents.keep(network(peer), Arc::clone(&consent));
    consent_page(app, session, &name, &consent, &Form::default(), None)
}

/// How long ago a person signed in, if the provider says so.
fn age(person: &Person) -> Option<u64> {
    person.auth_time.map(|time| now().saturating_sub(time))
}

fn consent_page(
    app: &App,
    session: &Session,
    name: &str,
    consent: &Consent,
    form: &Form,
    problem: Option<String>,
) -> Result<Response, Refused> {
    let Consent { request, offer, .. } = consent;
    let page = ConsentPage::new(
        &request.client,
        session.person.shown(),
        name,
        offer,
        &place(&request.redirect_uri),
        &app.descriptions,
        (form, problem),
    );
    // Browsers apply form-action to where the answer to the form redirects.
    page_with(&page, Some(&origin(&request.redirect_uri)))
}

async fn refuse_by_policy(
    app: &App,
    session: &Session,
    request: &AuthorizationRequest,
    refused: &NoOffer,
) -> Result<Response, Refused> {
    let tools = raw(&request.asked.tools.to_value().canonical());
    let client = &request.client.id;
    let event = Event::about(
        Kind::NotAllowed,
        (&app.url, &session.person.subject),
        client,
        tools.as_deref(),
    );
    events::record(&app.store, event, &app.metrics.grants).await?;
    let code = match refused {
        NoOffer::Resource(_) | NoOffer::Audience => Code::InvalidTarget,
        NoOffer::Tool(_) | NoOffer::Nothing => Code::AccessDenied,
    };
    let error = code.with(refused.to_string());
    match request.client.host {
        Some(_) => Err(error.into()),
        None => Ok(back_with_error(app, request.destination(), &error)),
    }
}

/// `POST /consent`
pub(crate) async fn decide(State(app): State<Arc<App>>, headers: HeaderMap, body: Bytes) -> Result<Response, Refused> {
    let fields = Parameters::parse(&body)?;
    let name = fields.one("consent").unwrap_or_default();
    let consent = app.consents.find(name);
    let (cookie, session) = session(&app, &headers).ok_or_else(Refused::signed_out)?;
    let consent = consent
        .filter(|consent| consent.session == cookie)
        .ok_or_else(Refused::signed_out)?;
    let Consent { request, offer, .. } = &*consent;
    let subject = &session.person.subject;
    match fields.one("decision") {
        Some("allow") => {}
        Some("refuse") => {
            app.consents.take(name).ok_or_else(Refused::signed_out)?;
            let tools = raw(&offer.tools.to_value().canonical());
            let event = Event::about(Kind::Refused, (&app.url, subject), &request.client.id, tools.as_deref());
            events::record(&app.store, event, &app.metrics.grants).await?;
            let error = Code::AccessDenied.with("the person refused");
            return Ok(back_with_error(&app, request.destination(), &error));
        }
        _ => return Err(Refused::request("the form has no decision".to_owned())),
    }
    let form = Form(
        fields
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
    );
    let choice = match choose(offer, &form, &app.descriptions) {
        Ok(choice) => choice,
        Err(problem) => return consent_page(&app, &session, name, &consent, &form, Some(problem.to_string())),
    };
    let Some(epochs) = app.epochs(subject).await? else {
        let text = "Your account is disabled, so you cannot delegate anything.".to_owned();
        return Err(Refused::new(StatusCode::FORBIDDEN, "You cannot delegate", text));
    };
    // What revoked the person's grants has revoked this session, too.
    if session.epochs != Some(epochs) {
        app.sessions.take(&cookie);
        return Err(Refused::signed_out());
    }
    // Only now: a second click finds nothing.
    app.consents.take(name).ok_or_else(Refused::signed_out)?;
    let id = Uuid::now_v7();
    let grant = granted(&app, request, offer, &choice, subject, epochs)?;
    if !app.grants.begin(id, grant, app.grants_per_person).await? {
        let text = "You have too many delegations. Take some back first.".to_owned();
        return Err(Refused::new(StatusCode::FORBIDDEN, "Too many", text));
    }
    let code = codes::code(&app.keys.now(), id);
    Ok(back(&app, request.destination(), &[("code", &code)]))
}

fn granted(
    app: &App,
    request: &AuthorizationRequest,
    offer: &Offer,
    choice: &Choice,
    subject: &str,
    epochs: Epochs,
) -> Result<Grant, Refused> {
    let now = now();
    let is_granted = |scope: &&str| {
        let tools = app.scopes.get(*scope);
        tools.is_some_and(|tools| tools.iter().all(|(tool, _)| choice.tools.only(tool).is_some()))
    };
    let scopes: Vec<&str> = request.scopes.iter().map(String::as_str).filter(is_granted).collect();
    Ok(Grant {
        subject: subject.to_owned(),
        client: request.client.id.clone(),
        client_name: match &request.client.host {
            Some(host) => format!("{} ({host})", request.client.name),
            None => request.client.name.clone(),
        },
        tools: raw(&choice.tools.to_value().canonical()).ok_or_else(Refused::broken)?,
        audience: offer.audience.clone(),
        depth: choice.depth,
        bearer: offer.terms.bearer,
        token_seconds: offer.terms.token_seconds,
        rules: offer.rules.clone(),
        // Without it, clients would take it for all that they asked for.
        scope: (!request.scopes.is_empty()).then(|| scopes.join(" ")),
        epochs,
        granted_at: now,
        expires_at: now.saturating_add(choice.seconds.into()),
        code: IssuedCode {
            challenge: request.challenge.clone(),
            redirect_uri: request.has_redirect_uri.then(|| request.redirect_uri.clone()),
            dpop_jkt: request.dpop_jkt.clone(),
            expires_at: now.saturating_add(CODE_SECONDS),
        },
        refresh: (0, 0),
        bound_to: None,
        tokens: 0,
        live: Vec::new(),
        withdrawn: None,
    })
}

// === Sign-in ===

async fn begin_sign_in(app: &App, peer: &Peer, demanded: Demanded, next: Next) -> Result<Response, Refused> {
    let begun = app.provider.begin(&demanded).await;
    let begun = begun.inspect_err(|_| count(&app.metrics.sign_ins, [("outcome", "failed")]))?;
    let browser = secret();
    let sign_in = SignIn {
        pending: begun.pending,
        browser: browser.clone(),
        next,
    };
    app.sign_ins.keep_as(&begun.state, network(peer), Arc::new(sign_in));
    let mut response = see_other(&begun.url);
    set_cookie(
        app,
        &mut response,
        &sign_in_cookie(&begun.state),
        Some((&browser, SIGN_IN_LIFE)),
    );
    Ok(response)
}

/// `GET /callback`: the person comes back from the provider.
pub(crate) async fn callback(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let parameters = Parameters::parse(query.unwrap_or_default().as_bytes())?;
    let state = parameters.one("state").unwrap_or_default();
    let sign_in = app.sign_ins.take(state);
    let browser = cookie(&app, &headers, &sign_in_cookie(state));
    // Only the browser that began this sign-in may finish it (login CSRF).
    let sign_in = sign_in.filter(|sign_in| browser.is_some_and(|browser| browser == sign_in.browser));
    let SignIn { pending, next, .. } = sign_in.and_then(Arc::into_inner).ok_or_else(Refused::signed_out)?;
    if let Some(error) = parameters.one("error") {
        tracing::info!(error = printable(error), "the identity provider refused a sign-in");
        count(&app.metrics.sign_ins, [("outcome", "refused")]);
        let text = "Your identity provider did not sign you in.".to_owned();
        return Err(Refused::new(StatusCode::FORBIDDEN, "You are not signed in", text));
    }
    let code = parameters.one("code").ok_or_else(Refused::signed_out)?.to_owned();
    let iss = parameters.one("iss").map(str::to_owned);
    let person = app.provider.finish(pending, code, iss).await;
    let outcome = if person.is_ok() { "ok" } else { "failed" };
    count(&app.metrics.sign_ins, [("outcome", outcome)]);
    let person = person?;
    let epochs = app.epochs(&person.subject).await;
    let epochs = epochs.inspect_err(|error| tracing::warn!(%error, "a call to the control plane failed"));
    // Always a new one: a cookie that someone else has planted is worth nothing.
    if let Some(earlier) = cookie(&app, &headers, SESSION_COOKIE) {
        app.sessions.take(&earlier);
    }
    let session = Arc::new(Session {
        person,
        epochs: epochs.ok().flatten(),
        form: secret(),
    });
    let cookie = app.sessions.keep(network(&peer), Arc::clone(&session));
    let mut response = match next {
        Next::Grants => see_other("/"),
        Next::Consent { request, is_demanded } => offer(&app, &peer, &cookie, &session, request, is_demanded).await?,
    };
    set_cookie(&app, &mut response, SESSION_COOKIE, Some((&cookie, SESSION_LIFE)));
    set_cookie(&app, &mut response, &sign_in_cookie(state), None);
    Ok(response)
}

/// `POST /sign-out`
pub(crate) async fn sign_out(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refused> {
    let (cookie, _) = from_our_form(&app, &headers, &Parameters::parse(&body)?)?;
    app.sessions.take(&cookie);
    let text = "You are signed out here. You may still be signed in at your identity provider.".to_owned();
    let mut response = Refused::new(StatusCode::OK, "Signed out", text).into_response();
    set_cookie(&app, &mut response, SESSION_COOKIE, None);
    Ok(response)
}

// === Grants ===

/// `GET /`: what the person has granted.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Refused> {
    let Some((_, session)) = session(&app, &headers) else {
        return begin_sign_in(&app, &peer, Demanded::default(), Next::Grants).await;
    };
    let notice = match query.as_deref() {
        Some("withdrawn=confirmed") => Some("Taken back. No service accepts it any more."),
        Some("withdrawn=committed") => {
            Some("Taken back. A service that cannot be reached may accept it for some seconds.")
        }
        Some("withdrawn=pending") => Some("Taken back. Services that have seen it may accept it until they are told."),
        _ => None,
    };
    let subject = &session.person.subject;
    // The list matters more than what happened last.
    let (uses, epochs) = tokio::join!(app.plane.uses(&app.url, subject), app.epochs(subject));
    let uses = uses.inspect_err(|error| tracing::warn!(%error, "the last uses of grants are not known"));
    let epochs = epochs.ok();
    let grants = app.grants.of(subject, now())?;
    let views = grants.iter().map(|(id, grant)| {
        let is_revoked = epochs.is_some_and(|epochs| epochs != Some(grant.epochs));
        view(&app, *id, grant, is_revoked, uses.as_deref().ok())
    });
    let page = GrantsPage {
        person: printable(session.person.shown()),
        notice,
        grants: views.collect(),
        form: session.form.clone(),
    };
    page_with(&page, None)
}

fn view<'u>(app: &App, id: Uuid, grant: &Grant, is_revoked: bool, uses: Option<&'u [Use]>) -> GrantView {
    let now = now();
    // Not the grant itself, and its end.
    let is_use = |seen: &&Use| {
        let mut ids = seen.delegation_ids.iter();
        ids.any(|token| Grant::of_token(token) == Some(id)) && !seen.tool.is_empty()
    };
    // The ledger has them in the order in which they arrived.
    let last = |uses: &'u [Use]| {
        let uses = uses.iter().filter(is_use);
        uses.max_by_key(|seen| seen.time.trim_end_matches('Z'))
    };
    let last_use = match uses.map(last) {
        None => "The last use is not available now.".to_owned(),
        Some(None) => "No use in the latest records.".to_owned(),
        Some(Some(Use {
            time, decision, tool, ..
        })) => {
            let outcome = if decision == "allow" { "allowed" } else { "denied" };
            let time = time.split(['.', 'Z']).next().unwrap_or_default().replace('T', " ");
            format!(
                "Last use: {} UTC, {} ({outcome}).",
                printable(&time),
                words::title(tool, &app.descriptions)
            )
        }
    };
    let until = match grant.withdrawn {
        Some(_) => "taken back".to_owned(),
        None if is_revoked => "revoked by your organization".to_owned(),
        None if grant.expires_at <= now => "ended".to_owned(),
        None => format!("until {}", words::date(grant.expires_at)),
    };
    GrantView {
        id: id.to_string(),
        client: printable(&grant.client_name),
        tools: grant
            .tools()
            .map(|tools| tool_views(&tools, &app.descriptions, &Form::default()))
            .unwrap_or_default(),
        depth: words::depth(grant.depth),
        audience: grant.audience.iter().map(|service| printable(service)).collect(),
        since: words::date(grant.granted_at),
        is_live: grant.withdrawn.is_none() && !is_revoked && grant.expires_at > now,
        until,
        last_use,
    }
}

/// `POST /withdraw`
pub(crate) async fn withdraw(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refused> {
    let fields = Parameters::parse(&body)?;
    let (_, session) = from_our_form(&app, &headers, &fields)?;
    let id = fields.one("grant").and_then(|id| Uuid::parse_str(id).ok());
    let id = id.ok_or_else(|| Refused::request("the form names no grant".to_owned()))?;
    let owner = Owner::Person(session.person.subject.clone());
    if !app.grants.withdraw(id, owner, now()).await? {
        return Err(Refused::request("there is no such grant".to_owned()));
    }
    // It is stored, so it also happens if the control plane does not answer now.
    let outcome = match crate::tasks::revoke(&app, id).await {
        Ok(Progress::Confirmed) => "confirmed",
        Ok(Progress::Committed) => "committed",
        Err(error) => {
            tracing::warn!(%error, "the revocation of a grant has to be repeated");
            "pending"
        }
    };
    Ok(see_other(&format!("/?withdrawn={outcome}")))
}

/// The session of a form of ours.
fn from_our_form(app: &App, headers: &HeaderMap, fields: &Parameters) -> Result<(String, Arc<Session>), Refused> {
    let found = session(app, headers).ok_or_else(Refused::signed_out)?;
    match fields.one("form") == Some(&found.1.form) {
        true => Ok(found),
        false => Err(Refused::signed_out()),
    }
}

/// `GET /style.css`
pub(crate) async fn style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/css; charset=utf-8"),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    (headers, STYLE).into_response()
}

// === Cookies ===

/// The session of a browser, with its cookie.
fn session(app: &App, headers: &HeaderMap) -> Option<(String, Arc<Session>)> {
    let cookie = cookie(app, headers, SESSION_COOKIE)?;
    let session = app.sessions.find(&cookie)?;
    Some((cookie, session))
}

/// Over https, a name with `__Host-`: no other host and no plain connection can set it.
fn cookie_name(app: &App, name: &str) -> String {
    let is_secure = app.url.starts_with("https:");
    format!("{}{name}", if is_secure { "__Host-" } else { "" })
}

fn cookie(app: &App, headers: &HeaderMap, name: &str) -> Option<String> {
    let name = cookie_name(app, name);
    let cookies = headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .find(|(found, _)| *found == name)
        .map(|(_, value)| value.to_owned())
}

/// Sets a cookie for a time, or removes it.
fn set_cookie(app: &App, response: &mut Response, name: &str, value: Option<(&str, Duration)>) {
    let secure = if app.url.starts_with("https:") { "; Secure" } else { "" };
    let (value, age) = value.unwrap_or_default();
    // Lax: the provider sends the browser back from its own site.
    let cookie = format!(
        "{}={value}; Path=/; HttpOnly; SameSite=Lax{secure}; Max-Age={}",
        cookie_name(app, name),
        age.as_secs()
    );
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// One for each sign-in: a browser may begin several at once.
fn sign_in_cookie(state: &str) -> String {
    let begin: String = state.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("credence-sign-in-{begin}")
}

// === Answers ===

/// Sends the person back to the client (RFC 6749, section 4.1.2; RFC 9207).
fn back(app: &App, (redirect_uri, state): (&str, Option<&str>), parameters: &[(&str, &str)]) -> Response {
    let Ok(mut url) = Url::parse(redirect_uri) else {
        return Refused::broken().into_response();
    };
    {
        let mut query = url.query_pairs_mut();
        for (name, value) in parameters {
            query.append_pair(name, value);
        }
        if let Some(state) = state {
            query.append_pair("state", state);
        }
        query.append_pair("iss", &app.url);
    }
    see_other(url.as_str())
}

fn back_with_error(app: &App, destination: (&str, Option<&str>), error: &OauthError) -> Response {
    let parameters = [("error", error.code.name()), ("error_description", &error.description)];
    back(app, destination, &parameters)
}

/// 303, so that no browser repeats a form elsewhere (RFC 9700, section 4.12).
fn see_other(url: &str) -> Response {
    match HeaderValue::from_str(url) {
        Ok(location) => {
            let mut response = (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response();
            protect(response.headers_mut(), None);
            response
        }
        Err(_) => Refused::broken().into_response(),
    }
}

fn page_with(page: &impl Template, form_target: Option<&str>) -> Result<Response, Refused> {
    let html = page.render().map_err(|_| Refused::broken())?;
    let mut response = Html(html).into_response();
    protect(response.headers_mut(), form_target);
    Ok(response)
}

fn protect(headers: &mut HeaderMap, form_target: Option<&str>) {
    let policy = format!(
        "default-src 'none'; style-src 'self'; form-action 'self'{}{}; frame-ancestors 'none'; base-uri 'none'",
        if form_target.is_some() { " " } else { "" },
        form_target.unwrap_or_default()
    );
    let policy = HeaderValue::from_str(&policy);
    let policy = policy.unwrap_or(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    for (name, value) in [
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// What a redirect URI is for a content security policy: its origin, or its scheme.
fn origin(uri: &str) -> String {
    match Url::parse(uri) {
        // Policies have no IPv6 addresses.
        Ok(url) if matches!(url.scheme(), "http" | "https") && !matches!(url.host(), Some(Host::Ipv6(_))) => {
            url.origin().ascii_serialization()
        }
        Ok(url) => format!("{}:", url.scheme()),
        Err(_) => String::new(),
    }
}

/// A redirect URI for people: without path and query.
fn place(uri: &str) -> String {
    match Url::parse(uri) {
        Ok(url)
            if url
                .host_str()
                .is_some_and(|host| matches!(host, "127.0.0.1" | "[::1]" | "localhost")) =>
        {
            "a program on this machine".to_owned()
        }
        Ok(url) => url
            .host_str()
            .map_or_else(|| format!("the app {}", url.scheme()), str::to_owned),
        Err(_) => String::new(),
    }
}

fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(json.to_owned()).ok()
}

// === impl Refused ===

impl Refused {
    fn new(status: StatusCode, title: &'static str, text: String) -> Self {
        Self {
            status,
            title,
            text,
            code: None,
        }
    }

    fn request(text: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "This request cannot be used", text)
    }

    fn signed_out() -> Self {
        let text =
            "Too much time has passed, or this was begun in another browser. Go back to the program, and begin again.";
        Self::new(StatusCode::FORBIDDEN, "Begin again", text.to_owned())
    }

    fn later() -> Self {
        let text = "Something that this needs does not answer. Try again in a minute.".to_owned();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Not now", text)
    }

    fn broken() -> Self {
        let text = "Something is broken here. The log of the issuer says more.".to_owned();
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "This did not work", text)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let page = ErrorPage {
            title: self.title,
            text: printable(&self.text),
            code: self.code,
        };
        let html = page.render().unwrap_or_default();
        let mut response = (self.status, Html(html)).into_response();
        protect(response.headers_mut(), None);
        response
    }
}

impl From<OauthError> for Refused {
    fn from(error: OauthError) -> Self {
        let mut refused = Self::request(error.description);
        refused.code = Some(error.code.name());
        refused
    }
}

impl From<ClientError> for Refused {
    fn from(error: ClientError) -> Self {
        match error {
            // Addresses and errors of other servers are for the operator only.
            ClientError::Fetch(error) => {
                tracing::info!(%error, "a client's document cannot be read");
                Self::request("the client's document cannot be read".to_owned())
            }
            ClientError::Busy => Self::later(),
            error => Self::request(error.to_string()),
        }
    }
}

impl From<SignInError> for Refused {
    fn from(error: SignInError) -> Self {
        tracing::warn!(%error, "a person was not signed in");
        let status = match error {
            SignInError::Busy | SignInError::Metadata(_) | SignInError::TokenEndpoint(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::FORBIDDEN,
        };
        Self::new(status, "You are not signed in", error.for_person().to_owned())
    }
}

impl From<PlaneError> for Refused {
    fn from(error: PlaneError) -> Self {
        tracing::warn!(%error, "a call to the control plane failed");
        Self::later()
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "the database does not answer");
        Self::later()
    }
}

const SESSION_COOKIE: &str = "credence-session";
