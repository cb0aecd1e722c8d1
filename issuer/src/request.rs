//! An authorization request: what a client asks a person for (RFC 6749, section 4.1.1; RFC 7636; RFC 8707; RFC 9396).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use credence_delegation::json::{Json, Object};

use crate::clients::Client;
use crate::error::{Code, OauthError};
use crate::parameters::Parameters;
use crate::policy::Asked;
use crate::tools::Tools;

/// A request that is well formed. What it asks for may still be refused.
#[derive(Debug, Clone)]
pub(crate) struct AuthorizationRequest {
    pub(crate) client: Arc<Client>,
    /// Where the person returns.
    pub(crate) redirect_uri: String,
    /// Whether the client sent it. Then it sends it with the code, too.
    pub(crate) has_redirect_uri: bool,
    pub(crate) state: Option<String>,
    /// SHA-256 of the verifier, in base64url.
    pub(crate) challenge: String,
    pub(crate) asked: Asked,
    /// The scopes among what it asks for.
    pub(crate) scopes: BTreeSet<String>,
    pub(crate) dpop_jkt: Option<String>,
}

/// Where errors about a request go.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// To the person: it is not certain whom the redirect would reach.
    Page(OauthError),
    /// To the client, at this URI.
    Client {
        redirect_uri: String,
        state: Option<String>,
        error: OauthError,
    },
}

// === impl AuthorizationRequest ===

impl AuthorizationRequest {
    /// Reads the parameters of a request of this client.
    pub(crate) fn read(
        client: Arc<Client>,
        parameters: &Parameters,
        scopes: &BTreeMap<String, Tools>,
    ) -> Result<Self, RequestError> {
        let redirect_uri = redirect_uri(&client, parameters).map_err(RequestError::Page)?;
        let state = parameters.one("state").map(str::to_owned);
        Self::read_rest(client, parameters, scopes, &redirect_uri, state.clone()).map_err(|error| {
            RequestError::Client {
                redirect_uri,
                state,
                error,
            }
        })
    }

    fn read_rest(
        client: Arc<Client>,
        parameters: &Parameters,
        known: &BTreeMap<String, Tools>,
        redirect_uri: &str,
        state: Option<String>,
    ) -> Result<Self, OauthError> {
        if state.as_ref().is_some_and(|state| state.len() > MAX_STATE_BYTES) {
            return Err(OauthError::invalid_request(format!(
                "state is longer than {MAX_STATE_BYTES} bytes"
            )));
        }
        if parameters.one("request").is_some() {
            return Err(Code::RequestNotSupported
                .with("request objects (RFC 9101) are not supported; push the request (RFC 9126)"));
        }
        match parameters.one("response_type") {
            Some("code") => {}
            Some(_) => return Err(Code::UnsupportedResponseType.with("only response_type=code is supported")),
            None => return Err(OauthError::invalid_request("response_type is missing; send code")),
        }
        if !matches!(parameters.one("response_mode"), None | Some("query")) {
            return Err(OauthError::invalid_request("only response_mode=query is supported"));
        }
        let challenge = parameters.one("code_challenge").unwrap_or_default();
        let is_s256 = parameters.one("code_challenge_method") == Some("S256");
        if !is_s256 || !is_digest(challenge) {
            return Err(OauthError::invalid_request(
                "send code_challenge with code_challenge_method=S256 (RFC 7636)",
            ));
        }
        let dpop_jkt = parameters.one("dpop_jkt");
        if dpop_jkt.is_some_and(|thumbprint| !is_digest(thumbprint)) {
            return Err(OauthError::invalid_request(
                "dpop_jkt is no SHA-256 thumbprint (RFC 9449, section 10)",
            ));
        }
        if parameters.one("prompt") == Some("none") {
            return Err(
                Code::InteractionRequired.with("a person always has to consent, so prompt=none is not possible")
            );
        }
        let scopes = scopes(parameters, known)?;
        Ok(Self {
            asked: asked(parameters, &scopes, known)?,
            has_redirect_uri: parameters.one("redirect_uri").is_some(),
            redirect_uri: redirect_uri.to_owned(),
            challenge: challenge.to_owned(),
            dpop_jkt: dpop_jkt.map(str::to_owned),
            client,
            state,
            scopes,
        })
    }

    /// Where the person returns, and with which `state`.
    pub(crate) fn destination(&self) -> (&str, Option<&str>) {
        (&self.redirect_uri, self.state.as_deref())
    }
}

/// The one that the client sent, or its only one.
fn redirect_uri(client: &Client, parameters: &Parameters) -> Result<String, OauthError> {
    match (parameters.one("redirect_uri"), client.redirect_uris.as_slice()) {
        (Some(sent), _) if client.accepts(sent) => Ok(sent.to_owned()),
        (Some(_), _) => Err(OauthError::invalid_request("redirect_uri is not one of the client's")),
        (None, [only]) => Ok(only.clone()),
        (None, _) => Err(OauthError::invalid_request("redirect_uri is missing")),
    }
}

fn scopes(parameters: &Parameters, known: &BTreeMap<String, Tools>) -> Result<BTreeSet<String>, OauthError> {
    let mut scopes = BTreeSet::new();
    for scope in parameters.one("scope").unwrap_or_default().split(' ') {
        match scope {
            // Every grant gives refresh tokens.
            "" | "offline_access" => {}
            scope if known.contains_key(scope) => _ = scopes.insert(scope.to_owned()),
            _ => return Err(Code::InvalidScope.with("scope has a name that is not in scopes_supported")),
        }
    }
    Ok(scopes)
}

/// The tools of scopes and authorization details, and where they are to be used.
fn asked(
    parameters: &Parameters,
    scopes: &BTreeSet<String>,
    known: &BTreeMap<String, Tools>,
) -> Result<Asked, OauthError> {
    let (detailed, depth) = match parameters.one("authorization_details") {
        Some(text) => details(text)?,
        None => (Tools::default(), 0),
    };
    let of_scopes = scopes.iter().filter_map(|scope| known.get(scope));
    let tools = joined(of_scopes.chain([&detailed])).ok_or_else(|| {
        Code::InvalidScope.with("scopes and authorization_details ask for one tool in different ways")
    })?;
    if tools.is_empty() {
        return Err(Code::InvalidScope.with("ask for tools, with scope or authorization_details"));
    }
    if tools.to_value().canonical().len() > MAX_TOOLS_BYTES {
        return Err(Code::InvalidScope.with(format!("the tools have more than {MAX_TOOLS_BYTES} bytes")));
    }
    let resources: BTreeSet<String> = parameters.all("resource").map(str::to_owned).collect();
    let is_uri = |uri: &String| uri.len() <= 1_024 && !uri.contains('#') && url::Url::parse(uri).is_ok();
    if resources.len() > MAX_RESOURCES || !resources.iter().all(is_uri) {
        return Err(Code::InvalidTarget
            .with("resource is no absolute URI without a fragment (RFC 8707), or there are too many"));
    }
    Ok(Asked {
        tools,
        resources,
        depth,
    })
}

/// All of these together. If two have the same tool, the one that covers the other; none if neither does.
fn joined<'t>(all: impl Iterator<Item = &'t Tools>) -> Option<Tools> {
    let mut joined = BTreeMap::<String, Tools>::new();
    for tools in all {
        for (tool, _) in tools.iter() {
            let one = tools.only(tool)?;
            match joined.get(tool) {
                Some(earlier) if earlier.cover(&one) => {}
                Some(earlier) if !one.cover(earlier) => return None,
                _ => _ = joined.insert(tool.to_owned(), one),
            }
        }
    }
    let members = joined.values().flat_map(Tools::iter);
    Tools::of(members.map(|(tool, constraints)| (tool.to_owned(), constraints.clone()))).ok()
}

/// `authorization_details` (RFC 9396) with one entry of type `attenuating_agent_token` (draft section 6.1): its tools,
/// and how often they may be handed on.
fn details(text: &str) -> Result<(Tools, u32), OauthError> {
    let wrong = |problem: String| Code::InvalidAuthorizationDetails.with(problem);
    if text.len() > MAX_DETAILS_BYTES {
        return Err(wrong(format!("it has more than {MAX_DETAILS_BYTES} bytes")));
    }
    let json = Json::parse(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    let [entry] = json.as_array().unwrap_or_default() else {
        return Err(wrong("it must be an array with one entry".to_owned()));
    };
    let entry: &Object<'_> = entry
        .as_object()
        .ok_or_else(|| wrong("its entry is no object".to_owned()))?;
    if entry.text("type") != Some("attenuating_agent_token") {
        return Err(wrong("the only type is attenuating_agent_token".to_owned()));
    }
    let is_known = |name: &str| matches!(name, "type" | "tools" | "del_max_depth");
    if let Some((unknown, _)) = entry.iter().find(|(name, _)| !is_known(name)) {
        return Err(wrong(format!("its entry has the unknown member {unknown:?}")));
    }
    let depth = match entry.member("del_max_depth") {
        None => Some(0),
        Some(depth) => depth.as_integer().and_then(|depth| u32::try_from(depth).ok()),
    };
    let depth = depth.ok_or_else(|| wrong("del_max_depth is no number from 0".to_owned()))?;
    let tools = entry
        .object("tools")
        .ok_or_else(|| wrong("its entry has no tools".to_owned()))?;
    if tools.iter().count() > MAX_TOOLS {
        return Err(wrong(format!("it has more than {MAX_TOOLS} tools")));
    }
    let tools = Tools::read(tools).map_err(|error| wrong(error.to_string()))?;
    Ok((tools, depth))
}

/// Whether a text is a SHA-256 in unpadded base64url.
fn is_digest(text: &str) -> bool {
    text.len() == 43
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

const MAX_STATE_BYTES: usize = 2_048;
const MAX_RESOURCES: usize = 16;
/// More than a person can read.
const MAX_TOOLS: usize = 64;
const MAX_DETAILS_BYTES: usize = 8 << 10;
/// They fit into a token.
const MAX_TOOLS_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Authentication;

    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

    fn client() -> Arc<Client> {
        Arc::new(Client {
            id: "planner".to_owned(),
            name: "Planner".to_owned(),
            host: None,
            redirect_uris: vec!["https://planner.example/cb".to_owned()],
            authentication: Authentication::None,
            introspects: false,
        })
    }

    fn scopes() -> BTreeMap<String, Tools> {
        let tools = |json: &str| Tools::parse(&Json::parse(json.as_bytes()).unwrap()).unwrap();
        let small = r#"{"pay": {"amount": {"constraint_type": "range", "max": 10}}}"#;
        let large = r#"{"pay": {"amount": {"constraint_type": "range", "max": 100}}}"#;
        [
            ("read".to_owned(), tools(r#"{"read": {}}"#)),
            ("small".to_owned(), tools(small)),
            ("large".to_owned(), tools(large)),
        ]
        .into()
    }

    /// A valid request with other and further parameters.
    fn read(changes: &[(&str, &str)]) -> Result<AuthorizationRequest, RequestError> {
        let usual = [
            ("response_type", "code"),
            ("redirect_uri", "https://planner.example/cb"),
            ("state", "s"),
            ("scope", "read"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
        ];
        let is_changed = |name: &str| changes.iter().any(|(changed, _)| *changed == name);
        let kept = usual.into_iter().filter(|(name, _)| !is_changed(name));
        let mut encoded = url::form_urlencoded::Serializer::new(String::new());
        encoded.extend_pairs(kept.chain(changes.iter().copied()));
        let parameters = Parameters::parse(encoded.finish().as_bytes()).unwrap();
        AuthorizationRequest::read(client(), &parameters, &scopes())
    }

    #[test]
    fn a_request_says_what_is_asked_and_where_the_person_returns() {
        let request = read(&[
            ("resource", "https://orders.example"),
            ("scope", "read small offline_access"),
        ])
        .unwrap();
        assert_eq!(request.redirect_uri, "https://planner.example/cb");
        assert_eq!(
            request.asked.tools.iter().map(|(tool, _)| tool).collect::<Vec<_>>(),
            ["pay", "read"]
        );
        assert_eq!(request.asked.resources, ["https://orders.example".to_owned()].into());
        assert_eq!(request.scopes, ["read".to_owned(), "small".to_owned()].into());
        // Its only one, if the client sends none.
        assert!(!read(&[("redirect_uri", "")]).unwrap().has_redirect_uri);
    }

    #[test]
    fn of_two_scopes_with_one_tool_the_wider_counts() {
        let request = read(&[("scope", "small large")]).unwrap();
        assert!(request.asked.tools.cover(&scopes()["large"]));
    }

    #[test]
    fn details_ask_for_tools_and_depth() {
        let details = r#"[{"type": "attenuating_agent_token", "tools": {"pay": {}}, "del_max_depth": 2}]"#;
        let request = read(&[("authorization_details", details), ("scope", "")]).unwrap();
        assert_eq!(request.asked.depth, 2);
        for wrong in [
            "{}",
            "[]",
            r#"[{"type": "payment"}]"#,
            r#"[{"type": "attenuating_agent_token"}]"#,
            r#"[{"type": "attenuating_agent_token", "tools": {"pay": 7}}]"#,
            r#"[{"type": "attenuating_agent_token", "tools": {"pay": {"a": {"constraint_type": "magic"}}}}]"#,
            r#"[{"type": "attenuating_agent_token", "tools": {"pay": {}}, "del_max_depth": -1}]"#,
            r#"[{"type": "attenuating_agent_token", "tools": {"pay": {}}, "exp": 1}]"#,
            r#"[{"type": "attenuating_agent_token", "tools": {"pay": {}}}, {"type": "attenuating_agent_token", "tools": {}}]"#,
        ] {
            match read(&[("authorization_details", wrong)]) {
                Err(RequestError::Client { error, .. }) => {
                    assert_eq!(error.code, Code::InvalidAuthorizationDetails, "{wrong}")
                }
                other => panic!("{wrong}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_error_goes_to_the_client_only_if_the_redirect_is_its_own() {
        for (changes, expected) in [
            (&[("response_type", "token")][..], Code::UnsupportedResponseType),
            (&[("response_type", "")], Code::InvalidRequest),
            (&[("response_mode", "fragment")], Code::InvalidRequest),
            (&[("code_challenge", "")], Code::InvalidRequest),
            (&[("code_challenge_method", "plain")], Code::InvalidRequest),
            (&[("code_challenge_method", "")], Code::InvalidRequest),
            (&[("code_challenge", "short")], Code::InvalidRequest),
            (&[("scope", "write")], Code::InvalidScope),
            (&[("scope", "")], Code::InvalidScope),
            (&[("resource", "orders")], Code::InvalidTarget),
            (&[("resource", "https://orders.example#a")], Code::InvalidTarget),
            (&[("prompt", "none")], Code::InteractionRequired),
            (&[("dpop_jkt", "x")], Code::InvalidRequest),
            (&[("request", "eyJ")], Code::RequestNotSupported),
        ] {
            match read(changes) {
                Err(RequestError::Client { error, state, .. }) => {
                    assert_eq!((error.code, state.as_deref()), (expected, Some("s")), "{changes:?}");
                }
                other => panic!("{changes:?}: {other:?}"),
            }
        }
        for uri in [
            "https://evil.example/cb",
            "https://planner.example/cb/",
            "https://planner.example/cb?a=b",
            "https://planner.example:443/cb",
            "HTTPS://planner.example/cb",
            "https://planner.example/cb#x",
        ] {
            assert!(
                matches!(read(&[("redirect_uri", uri)]), Err(RequestError::Page(_))),
                "{uri}"
            );
        }
    }
}
