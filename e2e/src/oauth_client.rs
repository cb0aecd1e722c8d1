//! An agent that asks the issuer for authority: an OAuth client with PKCE and a key of its own.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use url::Url;
use url::form_urlencoded::Serializer;

use crate::browser::{self, CALLBACK};
use crate::forge::{self, Forger};
use crate::random::secret;
use crate::{Client, Failure, Reply, Request};

/// The agent.
#[derive(Debug)]
pub struct OauthClient {
    issuer: Url,
    key: Forger,
    connection: Option<Client>,
}

/// A request for authority.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The page where a person decides.
    pub page: String,
    verifier: String,
}

/// What the agent gets.
#[derive(Debug, Clone, Deserialize)]
pub struct Tokens {
    /// A delegation that the agent's key holds.
    pub access_token: String,
    /// For further ones.
    pub refresh_token: String,
}

/// Why it gets none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The HTTP status.
    pub status: u16,
    /// The error code of RFC 6749.
    pub error: String,
    /// `Retry-After`.
    pub retry_after: Option<String>,
}

/// A DPoP proof's claims (RFC 9449, section 4.2).
#[derive(Debug, Serialize)]
struct Proof<'p> {
    htm: &'p str,
    htu: &'p str,
    jti: String,
    iat: i64,
}

// === impl OauthClient ===

impl OauthClient {
    /// The client `planner` of the issuer at this URL, with this key.
    ///
    /// # Errors
    /// If the URL cannot be read.
    pub fn of(issuer: &str, key: Forger) -> Result<Self, Failure> {
        Ok(Self {
            issuer: browser::parse(issuer)?,
            key,
            connection: None,
        })
    }

    /// Asks for these tools (JSON), to be handed on this often. The request is pushed (RFC 9126).
    ///
    /// # Errors
    /// If the issuer does not accept it.
    pub fn ask(&mut self, tools: &str, depth: u32) -> Result<Asked, Failure> {
        let verifier = secret();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let details = format!(r#"[{{"type":"attenuating_agent_token","del_max_depth":{depth},"tools":{tools}}}]"#);
        let fields = [
            ("client_id", CLIENT),
            ("response_type", "code"),
            ("redirect_uri", CALLBACK),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("authorization_details", &details),
        ];
        let reply = self.post("/par", &fields)?;
        #[derive(Deserialize)]
        struct Pushed {
            request_uri: String,
        }
        let pushed: Result<Pushed, _> = serde_json::from_slice(&reply.body);
        let pushed = pushed.map_err(|_| Failure::new(format!("/par answers {}: {}", reply.status, reply.text())))?;
        let mut page = self.endpoint("/authorize");
        page.query_pairs_mut()
            .append_pair("client_id", CLIENT)
            .append_pair("request_uri", &pushed.request_uri);
        Ok(Asked {
            page: page.into(),
            verifier,
        })
    }

    /// Redeems a code for a delegation to its key (draft section 6.1).
    ///
    /// # Errors
    /// If the issuer does not answer.
    pub fn redeem(&mut self, asked: &Asked, code: &str) -> Result<Result<Tokens, Refused>, Failure> {
        self.token(&[
            ("grant_type", "authorization_code"),
            ("code", code),
            ("code_verifier", &asked.verifier),
            ("redirect_uri", CALLBACK),
        ])
    }

    /// Gets another token for a refresh token.
    ///
    /// # Errors
    /// If the issuer does not answer.
    pub fn refresh(&mut self, refresh_token: &str) -> Result<Result<Tokens, Refused>, Failure> {
        self.token(&[("grant_type", "refresh_token"), ("refresh_token", refresh_token)])
    }

    fn token(&mut self, fields: &[(&str, &str)]) -> Result<Result<Tokens, Refused>, Failure> {
        let confirmation = json!({"jwk": self.key.jwk()}).to_string();
        let own = [("client_id", CLIENT), ("req_cnf", &confirmation)];
        let reply = self.post("/token", &[fields, &own].concat())?;
        let read = || Failure::of(format!("reading the answer of /token: {}", reply.text()));
        if reply.status == 200 {
            return serde_json::from_slice(&reply.body).map(Ok).map_err(read());
        }
        #[derive(Deserialize)]
        struct Problem {
            error: String,
        }
        let Problem { error } = serde_json::from_slice(&reply.body).map_err(read())?;
        Ok(Err(Refused {
            status: reply.status,
            error,
            retry_after: reply.header("retry-after").map(str::to_owned),
        }))
    }

    /// Posts a form, with a proof of the key.
    fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Result<Reply, Failure> {
        let body = Serializer::new(String::new()).extend_pairs(fields).finish();
        let header = json!({"alg": "Ed25519", "typ": "dpop+jwt", "jwk": self.key.jwk()}).to_string();
        let url = self.endpoint(path);
        let proof = Proof {
            htm: "POST",
            htu: url.as_str(),
            jti: secret(),
            iat: forge::now(),
        };
        let proof = self.key.sign_under(&header, &proof)?;
        let request = Request::new("POST", path).to(&url).form(body).header("dpop", proof);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Client::connect(browser::address(&self.issuer)?)?,
        };
        let reply = connection.send(&request)?;
        // A failed connection is not used again.
        self.connection = Some(connection);
        Ok(reply)
    }

    fn endpoint(&self, path: &str) -> Url {
        let mut endpoint = self.issuer.clone();
        endpoint.set_path(path);
        endpoint
    }
}

// === impl Tokens ===

impl Tokens {
    /// The delegation's id (`jti`).
    ///
    /// # Errors
    /// If it has none.
    pub fn id(&self) -> Result<String, Failure> {
        let claims = forge::claims_of(&self.access_token)?;
        let id = claims.get("jti").ok_or_else(|| Failure::new("a token has no jti"))?;
        serde_json::from_str(id.get()).map_err(Failure::of("reading a jti"))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.error)
    }
}

/// The agent's `client_id`.
pub const CLIENT: &str = "planner";
