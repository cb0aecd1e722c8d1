//! An OpenID provider on the loopback address that answers as it is told.

#![allow(clippy::disallowed_types, reason = "claims that tests change one by one")]

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use credence_delegation::{KeyType, SigningKey};
use credence_runtime::time::unix_seconds;
use openidconnect::core::{CoreJwsSigningAlgorithm, CoreRsaPrivateSigningKey};
use openidconnect::{JsonWebKeyId, PrivateSigningKey as _};
use serde_json::{Value, json};

/// A running provider.
pub(super) struct TestProvider {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    answers: HashMap<String, Answer>,
    /// The path, the headers and the body of each.
    requests: Vec<(String, String)>,
}

#[derive(Clone)]
pub(super) struct Answer {
    status: u16,
    body: String,
    delay: Duration,
}

/// A P-256 key.
pub(super) struct TestKey {
    pub(super) id: &'static str,
    secret: [u8; 32],
}

pub(super) const KEY: TestKey = TestKey {
    id: "key-1",
    secret: [1; 32],
};
pub(super) const OTHER_KEY: TestKey = TestKey {
    id: "key-2",
    secret: [2; 32],
};

/// The claims of an ID token.
pub(super) struct Claims(pub(super) Value);

// === impl Answer ===

impl Answer {
    pub(super) fn ok(body: &str) -> Self {
        Self::status(200, body)
    }

    pub(super) fn status(status: u16, body: &str) -> Self {
        Self {
            status,
            body: body.to_owned(),
            delay: Duration::ZERO,
        }
    }

    pub(super) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

// === impl TestProvider ===

impl TestProvider {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let served = Arc::clone(&state);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (connection, served) = (connection.unwrap(), Arc::clone(&served));
                thread::spawn(move || serve(connection, &served));
            }
        });
        let provider = Self { url, state };
        let url = &provider.url;
        let metadata = json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        });
        provider.answer(METADATA, Answer::ok(&metadata.to_string()));
        let ed25519 = identified(&ed25519().public().to_jwk(), "key-ed25519");
        let rsa = serde_json::to_string(&rsa().as_verification_key()).unwrap();
        provider.set_keys(&[KEY.jwk_as(KEY.id), ed25519, rsa]);
        provider
    }

    pub(super) fn answer(&self, path: &str, answer: Answer) {
        self.state().answers.insert(path.to_owned(), answer);
    }

    /// Null leaves the member out.
    pub(super) fn change_metadata(&self, member: &str, value: Value) {
        let metadata = serde_json::from_str(&self.state().answers[METADATA].body).unwrap();
        let metadata = Claims(metadata).with(json!({ member: value }));
        self.answer(METADATA, Answer::ok(&metadata.0.to_string()));
    }

    pub(super) fn set_keys(&self, keys: &[String]) {
        self.answer("/keys", Answer::ok(&format!(r#"{{"keys": [{}]}}"#, keys.join(","))));
    }

    pub(super) fn give_token(&self, id_token: &str) {
        let answer = json!({"access_token": "access", "token_type": "Bearer", "id_token": id_token});
        self.answer("/token", Answer::ok(&answer.to_string()));
    }

    /// The claims of a person who has followed this URL.
    pub(super) fn claims(&self, url: &str) -> Claims {
        let now = unix_seconds();
        Claims(json!({
            "iss": self.url,
            "sub": "ada",
            "aud": "credence",
            "exp": now + 300,
            "iat": now,
            "nonce": parameter(url, "nonce"),
            "name": "Ada",
        }))
    }

    /// How often a path was asked for.
    pub(super) fn count(&self, path: &str) -> usize {
        self.state().requests.iter().filter(|(asked, _)| asked == path).count()
    }

    /// The headers and the body of the last request.
    pub(super) fn last(&self, path: &str) -> String {
        let state = self.state();
        state
            .requests
            .iter()
            .rev()
            .find(|(asked, _)| asked == path)
            .unwrap()
            .1
            .clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn serve(connection: TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(&connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (reader.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let path = head.split(' ').nth(1)?.to_owned();
    let length = head
        .to_lowercase()
        .split_once("content-length: ")
        .map(|(_, rest)| rest.to_owned());
    let length = length
        .and_then(|rest| rest.split("\r\n").next()?.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = head + std::str::from_utf8(&body).ok()?;
    let answer = {
        let mut state = state.lock().unwrap();
        state.requests.push((path.clone(), request));
        state
            .answers
            .get(&path)
            .cloned()
            .unwrap_or_else(|| Answer::status(404, "{}"))
    };
    thread::sleep(answer.delay);
    let Answer { status, body, .. } = answer;
    let head = format!(
        "HTTP/1.1 {status} Status\r\ncontent-type: application/json\r\nlocation: /keys\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    (&connection).write_all((head + &body).as_bytes()).ok()
}

// === impl Claims ===

impl Claims {
    /// With these members changed; those that are null are left out.
    pub(super) fn with(mut self, changed: Value) -> Self {
        let claims = self.0.as_object_mut().unwrap();
        claims.extend(changed.as_object().unwrap().clone());
        claims.retain(|_, value| !value.is_null());
        self
    }
}

// === impl TestKey ===

impl TestKey {
    pub(super) fn sign(&self, claims: &Claims) -> String {
        self.sign_as(claims, self.id)
    }

    /// With this `kid`.
    pub(super) fn sign_as(&self, claims: &Claims, id: &str) -> String {
        self.sign_text(&claims.0.to_string(), id)
    }

    pub(super) fn sign_text(&self, claims: &str, id: &str) -> String {
        let input = signing_input(&format!(r#"{{"alg":"ES256","typ":"JWT","kid":"{id}"}}"#), claims);
        let signature = URL_SAFE_NO_PAD.encode(self.key().sign(input.as_bytes()));
        format!("{input}.{signature}")
    }

    /// The public key, with this `kid`.
    pub(super) fn jwk_as(&self, id: &str) -> String {
        identified(&self.key().public().to_jwk(), id)
    }

    fn key(&self) -> SigningKey {
        SigningKey::from_secret(KeyType::P256, &self.secret).unwrap()
    }
}

pub(super) fn sign_ed25519(claims: &Claims) -> String {
    let input = signing_input(r#"{"alg":"EdDSA","kid":"key-ed25519"}"#, &claims.0.to_string());
    let signature = URL_SAFE_NO_PAD.encode(ed25519().sign(input.as_bytes()));
    format!("{input}.{signature}")
}

pub(super) fn sign_rsa(claims: &Claims, algorithm: CoreJwsSigningAlgorithm) -> String {
    let name = serde_json::to_string(&algorithm).unwrap();
    let input = signing_input(&format!(r#"{{"alg":{name},"kid":"key-rsa"}}"#), &claims.0.to_string());
    let signature = rsa().sign(&algorithm, input.as_bytes()).unwrap();
    format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// A token with this signature.
pub(super) fn forge(header: &str, claims: &Claims, signature: &str) -> String {
    format!("{}.{signature}", signing_input(header, &claims.0.to_string()))
}

fn signing_input(header: &str, claims: &str) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims))
}

fn ed25519() -> SigningKey {
    SigningKey::from_seed(&[3; 32])
}

fn rsa() -> CoreRsaPrivateSigningKey {
    CoreRsaPrivateSigningKey::from_pem(RSA, Some(JsonWebKeyId::new("key-rsa".to_owned()))).unwrap()
}

fn identified(jwk: &str, id: &str) -> String {
    jwk.replacen('{', &format!(r#"{{"kid":"{id}","#), 1)
}

/// A parameter of a URL's query.
pub(super) fn parameter(url: &str, name: &str) -> Option<String> {
    let url = openidconnect::url::Url::parse(url).unwrap();
    let found = url.query_pairs().find(|(found, _)| found == name);
    found.map(|(_, value)| value.into_owned())
}

const METADATA: &str = "/.well-known/openid-configuration";
/// For these tests only.
const RSA: &str = "\
-----BEGIN RSA PRIVATE KEY-----\n\
MIIEpAIBAAKCAQEA6k/NDrbOJ1gjNV2jV0k2Ra4h/MB6wvqB0uzC+fj2sXlX2tcz\n\
GgHuBRT08k07xt3qQ83OQMmFl7IarPwd7Dmnf//sk9Lv48ljcXSim2TvIYACvDe4\n\
kJQpX7FMccs+nDWHAC1blmgPtO8vMwkvI4k2PF6ZZWqcm1w8DDJsplD1HfuL+whV\n\
I4X+ebd0h7towvse+uD+JDtEWolrQ6BHMH3oqy+JBw1i+NGYbgpJB0hDtk6LBfdR\n\
9ZXxTUfZLw+JcemFNGITwTRlLmKDdtnuwtxUckzrHxBBG9JTgsZtjK3DOAIrTX+4\n\
NX0kOzfyhR8kuanmUHGTAyJ7Mq8EAAawybtG6wIDAQABAoIBAAn8y89QQHpR2fJY\n\
4vECCGOw9/bnl3P/LJB6khcIoy9Obk3ANYfqxCQIUCaR3zXrWKR6PcvqKx0btOJh\n\
vr7GeFrO5F0qtRn/CBOadqHsC/tgEv3F3EKhZiATlSAWmz0aVP5PcKN5HQ5H0bm5\n\
rv4zR5IMMDqv8Cv5IwAcGCCAu+oCrYQxAZ1Ia35ph/2IPtmdkQ84HmW1lIMi/t+r\n\
jIcpIBI80MAyQQdGiY604nBGjU49ZOzALTRWwx2+3rPMNCN+hV6r5T2X8FTrTUjY\n\
IX5/hYdxOofmMl4DF6XXSeCzzIHqmXqwmyS9GFv+CzYroaXtozCPFb6mbt+Z7sDu\n\
nchWWr0CgYEA9YQ+FIFKDH2bW5XBw0KgYKtayPncnvPzz1Khsi8OdtPeHJ6wU4mt\n\
hjjEEijI6qqjjr1ukHbKN/mVtzlCO60lfq2Fcv3jIDw+/8P2FKx9RIjvKXXHGjjG\n\
1lYU9cdJ2HVwlazohGXfSX3zhHoK3FVmxS3QNmClUe0I6IqCdgMlUd0CgYEA9FET\n\
27XL423hUYclR06OF6J9N1W31q8SbHS8ZhyjhYK+VxmY7WL+DidN5h5TlOgMBL8z\n\
Te8mrpqsXTDfl5FLZGVL+vBjd4t8+8gFaE2Jt/wsxtPJVWvqNWE1o/FoY2LW67Ki\n\
2ymKauIR9m6GQWAoc3T9nehZX4VEBL6RCioMw2cCgYEAmEXf1wnlKmARJjl4xqkh\n\
HTPKB9JokjGN6u0+GmxzFSIMpUWK6RUACbpVaUngayNQc+xrkbALdbIXuF8MBEU8\n\
dxgaJ5rt7oVPMYSRsHrW6tXfN6Czz0CdmjwjndhvpZAZNsvaHpusZEF48pZa/BL/\n\
vZXPiJpijrBsEQYvKhCDagUCgYEA5reeGjCuzyIX0obedF1BoB4pQ1UmW41Ox67h\n\
r0hCP7V9DAG3Qg3mvvTtAnAHHCqaFu18hI9gJykXtpWNwLNL0A4810elluHZ8Gcu\n\
fBYlBOMWYdjkW0+iiDA5mI1Dt/9B2KkEVBUBivfcYKx1Ck3FRWroifM+Ww8dcaGI\n\
lGGrVecCgYAtzzIQ0v29lyFELougv7M8SwutIOQkXH1WgzhfmlR6NvhHrZ6/8v/g\n\
klYlDxTMwos4FuM6G90PgEwnAwaiZ29hUgKWTx95UrJRipHAtrMVyg4spuxzHi4s\n\
4+d559xSss8+WQ1h4c1RG3NYOjmTYt6TFzIjFqhi5G5b5J4X4q7tlw==\n\
-----END RSA PRIVATE KEY-----\n";
