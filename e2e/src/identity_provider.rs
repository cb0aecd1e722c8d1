//! A small OpenID Connect provider. It signs in at once whom the browser's cookie [`PERSON`] names, so that people need
//! no password here. interop/oauth has a real provider.

use std::collections::HashMap;
use std::io::{self, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::json;
use url::form_urlencoded::{self, Serializer};

use crate::Failure;
use crate::forge::{self, Forger, Jwk};
use crate::message::Message;
use crate::random::secret;
use crate::service::Service;

/// The cookie with the name of the person who uses the browser. Everyone is in the group `staff`.
pub const PERSON: &str = "person";

/// A running provider; stops listening when dropped.
#[derive(Debug)]
pub struct IdentityProvider(Service);

#[derive(Debug)]
struct Provider {
    key: Forger,
    /// By code.
    sign_ins: Mutex<HashMap<String, SignIn>>,
}

#[derive(Debug)]
struct SignIn {
    person: String,
    client: String,
    nonce: String,
}

/// An ID token (OpenID Connect Core 1.0, section 2).
#[derive(Debug, Serialize)]
struct IdToken<'s> {
    iss: &'s str,
    aud: &'s str,
    sub: &'s str,
    name: String,
    groups: [&'static str; 1],
    nonce: &'s str,
    auth_time: i64,
    iat: i64,
    exp: i64,
}

#[derive(Debug, Serialize)]
struct PublishedKey {
    #[serde(flatten)]
    jwk: Jwk,
    kid: &'static str,
    r#use: &'static str,
    alg: &'static str,
}

impl IdentityProvider {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// If there is none.
    pub fn start() -> Result<Self, Failure> {
        let provider = Arc::new(Provider {
            key: Forger::from_seed([9; 32]),
            sign_ins: Mutex::default(),
        });
        let service = Service::start("the identity provider", move |connection| {
            // The issuer or the browser reports a broken connection.
            let _ = provider.serve(connection);
        })?;
        Ok(Self(service))
    }

    /// Its issuer URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address())
    }
}

// === impl Provider ===

impl Provider {
    fn serve(&self, mut connection: TcpStream) -> io::Result<()> {
        let url = format!("http://{}", connection.local_addr()?);
        let mut reader = BufReader::new(connection.try_clone()?);
        while let Some(request) = Message::read_request(&mut reader)? {
            let target = request.start.split(' ').nth(1).unwrap_or_default();
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let answer = match path {
                "/.well-known/openid-configuration" => json_answer(&metadata(&url)),
                "/keys" => json_answer(&json!({"keys": [self.published_key()]}).to_string()),
                "/authorize" => self.authorize(&url, &request, query),
                "/token" => self.token(&url, &request)?,
                _ => answer("404 Not Found", "", ""),
            };
            connection.write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    fn published_key(&self) -> PublishedKey {
        PublishedKey {
            jwk: self.key.jwk(),
            kid: KEY_ID,
            r#use: "sig",
            alg: "EdDSA",
        }
    }

    /// The browser returns with a code.
    fn authorize(&self, url: &str, request: &Message, query: &str) -> String {
        let asked = parameters(query.as_bytes());
        let asked = |name: &str| asked.get(name).cloned().unwrap_or_default();
        let cookies = request.header("cookie").unwrap_or_default();
        let person = cookies.split("; ").filter_map(|cookie| cookie.split_once('='));
        let person = person.filter(|(name, _)| *name == PERSON).map(|(_, person)| person);
        let Some(person) = person.last() else {
            return answer("403 Forbidden", "", "no person uses this browser");
        };
        let code = secret();
        let sign_in = SignIn {
            person: person.to_owned(),
            client: asked("client_id"),
            nonce: asked("nonce"),
        };
        let mut sign_ins = self.sign_ins.lock().unwrap_or_else(PoisonError::into_inner);
        sign_ins.insert(code.clone(), sign_in);
        let mut back = Serializer::new(String::new());
        let back = back
            .append_pair("code", &code)
            .append_pair("state", &asked("state"))
            .append_pair("iss", url)
            .finish();
        let location = format!("location: {}?{back}\r\n", asked("redirect_uri"));
        answer("303 See Other", &location, "")
    }

    fn token(&self, url: &str, request: &Message) -> io::Result<String> {
        let code = parameters(&request.body).remove("code").unwrap_or_default();
        let mut sign_ins = self.sign_ins.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(SignIn { person, client, nonce }) = sign_ins.remove(&code) else {
            return Ok(answer("400 Bad Request", "", r#"{"error":"invalid_grant"}"#));
        };
        let now = forge::now();
        let claims = IdToken {
            iss: url,
            aud: &client,
            sub: &person,
            name: capitalised(&person),
            groups: ["staff"],
            nonce: &nonce,
            auth_time: now,
            iat: now,
            exp: now + 300,
        };
        let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": KEY_ID}).to_string();
        let id_token = self.key.sign_under(&header, &claims).map_err(io::Error::other)?;
        let tokens = json!({"access_token": "none", "token_type": "Bearer", "id_token": id_token});
        Ok(json_answer(&tokens.to_string()))
    }
}

fn metadata(url: &str) -> String {
    let metadata = json!({
        "issuer": url,
        "authorization_endpoint": format!("{url}/authorize"),
        "token_endpoint": format!("{url}/token"),
        "jwks_uri": format!("{url}/keys"),
        "response_types_supported": ["code"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["EdDSA"],
        "authorization_response_iss_parameter_supported": true,
    });
    metadata.to_string()
}

fn parameters(encoded: &[u8]) -> HashMap<String, String> {
    form_urlencoded::parse(encoded).into_owned().collect()
}

fn json_answer(body: &str) -> String {
    answer("200 OK", "content-type: application/json\r\n", body)
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

fn capitalised(name: &str) -> String {
    let (first, rest) = name.split_at_checked(1).unwrap_or_default();
    first.to_uppercase() + rest
}

const KEY_ID: &str = "1";
