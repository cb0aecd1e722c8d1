//! The operations of this crate in JSON, for the packages, which call them in Wasm.
//!
//! A request is `{"name": {…}}` with the operation's members, and bytes beside it: a line, a document or a body. The answer is
//! a JSON object: the result, `{"denied": …}` as the filter would answer, or `{"error": …}` if the request is wrong.

use std::collections::BTreeMap;

use credence_decision::agents::{Needed, Refusal};
use credence_decision::answer::Answer;
use credence_decision::decision::Denial;
use credence_decision::request::{HeaderNames, Request};
use credence_delegation::json::Json;
use credence_delegation::mint::{self, DpopRequest, Grant, Unsigned};
use credence_delegation::{Arguments, HeldChain, Limits, Members, PublicKey, UnixTime, Value};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::cases;
use crate::inspection::{Inspected, Token};
use crate::service::{Credential, Once, Origin, Possession, Presentation, Service, about_tool};

/// The services that a program has opened.
#[derive(Debug, Default)]
pub struct Operations {
    services: BTreeMap<u32, Service>,
    latest: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Operation<'a> {
    /// A case for a verifier, in the bytes.
    Verify {},
    /// What a chain says, unverified.
    Inspect { chain: String },
    /// What a chain grants its holder; every check but that of signatures is made.
    Hold { chain: String, now: i64 },
    /// Whether the chain grants this call.
    Permit {
        chain: String,
        tool: String,
        #[serde(borrow)]
        arguments: &'a RawValue,
        now: i64,
    },
    /// A token below the chain's last one, to be signed.
    Derive {
        chain: String,
        #[serde(borrow)]
        grant: WrittenGrant<'a>,
        now: i64,
    },
    /// A proof, to be signed.
    Prove {
        chain: String,
        #[serde(borrow)]
        invocation: WrittenInvocation<'a>,
        now: i64,
    },
    /// A DPoP proof, to be signed.
    Dpop {
        #[serde(borrow)]
        jwk: &'a RawValue,
        id: String,
        method: String,
        url: String,
        access_token: Option<String>,
        nonce: Option<String>,
        now: i64,
    },
    /// The thumbprint of a public key.
    Thumbprint {
        #[serde(borrow)]
        jwk: &'a RawValue,
    },
    /// Opens a service, whose rules are in the bytes.
    Open { origin: String, audience: Vec<String> },
    /// Closes a service.
    Close { service: u32 },
    /// Whether the body is needed.
    ReadsBody { service: u32, request: WrittenRequest },
    /// What a request presents. Its body is in the bytes, if it is needed.
    Present {
        service: u32,
        request: WrittenRequest,
        #[serde(borrow)]
        credential: WrittenCredential<'a>,
        id: String,
        nonce: Option<String>,
        now: i64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGrant<'a> {
    id: String,
    #[serde(borrow)]
    holder: &'a RawValue,
    audience: Vec<String>,
    #[serde(borrow)]
    tools: &'a RawValue,
    expires_at: i64,
    max_depth: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenInvocation<'a> {
    id: String,
    tool: String,
    #[serde(borrow)]
    arguments: &'a RawValue,
    audience: Option<String>,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRequest {
    method: String,
    /// Path and query.
    target: String,
    /// In the order of sending, without those of HTTP/2.
    headers: Vec<(String, String)>,
    has_body: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum WrittenCredential<'a> {
    /// A chain.
    Delegation(String),
    /// An access token, and the key that it is bound to.
    AccessToken {
        token: String,
        #[serde(borrow)]
        jwk: Option<&'a RawValue>,
    },
}

/// Why an operation gave nothing.
enum Failure {
    /// The request would be denied.
    Denied(Denial, Answer),
    Wrong(String),
}

type Outcome = Result<String, Failure>;

impl Operations {
    /// Carries out one operation.
    pub fn answer(&mut self, operation: &[u8], bytes: &[u8]) -> String {
        self.carry_out(operation, bytes)
            .unwrap_or_else(|failure| failure.json())
    }

    fn carry_out(&mut self, operation: &[u8], bytes: &[u8]) -> Outcome {
        let limits = Limits::WIDEST;
        match serde_json::from_slice(operation).map_err(wrong)? {
            Operation::Verify {} => verify(bytes),
            Operation::Inspect { chain } => contents(&chain),
            Operation::Hold { chain, now } => hold(&chain, UnixTime(now), &limits),
            Operation::Permit {
                chain,
                tool,
                arguments: written,
                now,
            } => {
                let arguments = arguments(written)?;
                let chain = HeldChain::read(&chain, UnixTime(now), &limits);
                let permitted = chain.and_then(|chain| chain.permits(&tool, &arguments));
                permitted.map_err(|denial| about_tool(denial, &tool))?;
                Ok("{}".to_owned())
            }
            Operation::Derive { chain, grant, now } => {
                let (now, chain) = (UnixTime(now), held(&chain, UnixTime(now), &limits)?);
                to_sign(&chain.derivation(&grant.read(now)?, &limits).map_err(wrong)?, None)
            }
            Operation::Prove { chain, invocation, now } => {
                let (now, chain) = (UnixTime(now), held(&chain, UnixTime(now), &limits)?);
                to_sign(&chain.proof(&invocation.read(now)?, &limits).map_err(wrong)?, None)
            }
            Operation::Dpop {
                jwk,
                id,
                method,
                url,
                access_token,
                nonce,
                now,
            } => {
                let request = DpopRequest {
                    id: &id,
                    issued_at: UnixTime(now),
                    method: &method,
                    uri: &url,
                    access_token: access_token.as_deref(),
                    nonce: nonce.as_deref(),
                };
                to_sign(&mint::dpop(&request, &key(jwk)?), None)
            }
            Operation::Thumbprint { jwk } => Ok(json!({"thumbprint": key(jwk)?.thumbprint().to_string()}).to_string()),
            Operation::Open { origin, audience } => {
                let origin = Origin::parse(&origin).map_err(wrong)?;
                let service = Service::new(origin, &audience, bytes).map_err(wrong)?;
                if self.services.len() >= MAX_SERVICES {
                    return Err(Failure::Wrong(format!(
                        "more than {MAX_SERVICES} services are open; close some"
                    )));
                }
                self.latest = self.latest.wrapping_add(1);
                let answer = json!({"service": self.latest, "issuers": service.rules().issuers});
                self.services.insert(self.latest, service);
                Ok(answer.to_string())
            }
            Operation::Close { service } => {
                self.services.remove(&service);
                Ok("{}".to_owned())
            }
            Operation::ReadsBody { service, request } => {
                let service = self.service(service)?;
                let headers = request.serialized(service.origin());
                let request = request.read(&headers, &service.rules().headers)?;
                let reads = service.rules().reads_body(&request);
                let reads = reads.map_err(|refusal| Failure::refused(&refusal, &request))?;
                Ok(json!({"reads_body": reads}).to_string())
            }
            Operation::Present {
                service,
                request,
                credential,
                id,
                nonce,
                now,
            } => {
                let once = Once {
                    id: &id,
                    now: UnixTime(now),
                    nonce: nonce.as_deref(),
                };
                present(self.service(service)?, &request, bytes, &credential, once)
            }
        }
    }

    fn service(&self, number: u32) -> Result<&Service, Failure> {
        let service = self.services.get(&number);
        service.ok_or_else(|| Failure::Wrong("this service is closed; open it again".to_owned()))
    }
}

// === The operations ===

fn verify(line: &[u8]) -> Outcome {
    let answered = cases::answer(line);
    let answer = answered.answer.to_json().map_err(wrong)?;
    let (notes, is_case) = (json!(answered.notes), answered.is_case);
    Ok(format!(r#"{{"answer":{answer},"notes":{notes},"is_case":{is_case}}}"#))
}

fn contents(chain: &str) -> Outcome {
    let tokens = chain.split('~').map(|token| Token::read(token).map_err(wrong));
    json(&Inspected::of(tokens.collect::<Result<_, Failure>>()?))
}

fn hold(chain: &str, now: UnixTime, limits: &Limits) -> Outcome {
    let chain = held(chain, now, limits)?;
    let holder = chain.holder();
    let answer = json!({
        "id": chain.id(),
        "issued_at": chain.issued_at().0,
        "expires_at": chain.expires_at().0,
        "depth": chain.depth(),
        "depth_left": chain.depth_left(),
        "tools": chain.tools().collect::<Vec<_>>(),
        "thumbprint": holder.map(|key| key.thumbprint().to_string()),
    });
    Ok(answer.to_string())
}

fn present(
    service: &Service,
    written: &WrittenRequest,
    body: &[u8],
    credential: &WrittenCredential<'_>,
    once: Once<'_>,
) -> Outcome {
    let rules = service.rules();
    let headers = written.serialized(service.origin());
    let request = written.read(&headers, &rules.headers)?;
    let body = written.has_body.then_some(body);
    let needed = rules.needed(&request, body);
    let call = match needed.map_err(|refusal| Failure::refused(&refusal, &request))? {
        Needed::Nothing => return json(&Presented::default()),
        Needed::Credential(call) => call,
    };
    let denied = |denial: Denial| Failure::refused(&call.refused(denial), &request);
    let (chain, bound_to);
    let credential = match credential {
        WrittenCredential::Delegation(text) => {
            chain = HeldChain::read(text, once.now, &rules.limits).map_err(|denial| denied(denial.into()))?;
            Credential::Delegation(&chain)
        }
        WrittenCredential::AccessToken { token, jwk } => {
            bound_to = jwk.map(key).transpose()?;
            Credential::AccessToken(token, bound_to.as_ref())
        }
    };
    let path = (written.method.as_str(), written.target.as_str());
    let presentation = service.presentation(&call, credential, path, once);
    let Presentation { header, possession } = presentation.map_err(denied)?;
    let (kind, proof) = match possession {
        Possession::Signed { header, proof } => {
            let proof = RawValue::from_string(to_sign(&proof, Some(&header))?);
            ("signed", Some(proof.map_err(wrong)?))
        }
        Possession::Certificate => ("certificate", None),
        Possession::None => ("none", None),
    };
    json(&Presented {
        rule: Some(&call.rule.name),
        tool: call.tool.as_deref(),
        arguments: Some(RawValue::from_string(call.arguments.canonical()).map_err(wrong)?),
        headers: vec![header],
        possession: Some(kind),
        needs_nonce: call.requirement.nonce,
        proof,
    })
}

/// What the key signs, and the header of a request that it is for.
fn to_sign(token: &Unsigned, name: Option<&str>) -> Outcome {
    let header: &RawValue = serde_json::from_str(token.header()).map_err(wrong)?;
    Ok(json!({"name": name, "header": header, "payload": token.payload()}).to_string())
}

// === impl of what is read ===

impl WrittenGrant<'_> {
    fn read(&self, issued_at: UnixTime) -> Result<Grant, Failure> {
        let json = Json::parse(self.tools.get().as_bytes()).map_err(wrong)?;
        let tools = json.as_object().ok_or_else(|| wrong("tools: not an object"))?;
        let tools = Members::from_json(tools).map_err(wrong)?;
        Ok(Grant {
            id: self.id.clone(),
            issued_at,
            expires_at: UnixTime(self.expires_at),
            holder: key(self.holder)?,
            holder_certificate: None,
            holder_spiffe_id: None,
            audience: self.audience.clone(),
            max_depth: self.max_depth,
            tools: Value::Object(tools),
        })
    }
}

impl WrittenInvocation<'_> {
    fn read(&self, issued_at: UnixTime) -> Result<mint::Invocation, Failure> {
        Ok(mint::Invocation {
            id: self.id.clone(),
            issued_at,
            tool: self.tool.clone(),
            arguments: arguments(self.arguments)?,
            audience: self.audience.clone(),
            nonce: self.nonce.clone(),
        })
    }
}

impl WrittenRequest {
    /// The headers as the service's proxy gets them.
    fn serialized(&self, origin: &Origin) -> Vec<u8> {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.as_bytes()));
        origin.serialized(&self.method, &self.target, headers)
    }

    fn read<'h>(&self, serialized: &'h [u8], names: &HeaderNames) -> Result<Request<'h>, Failure> {
        Request::parse(serialized, names, self.has_body).map_err(wrong)
    }
}

fn held(chain: &str, now: UnixTime, limits: &Limits) -> Result<HeldChain, Failure> {
    HeldChain::read(chain, now, limits).map_err(wrong)
}

fn arguments(written: &RawValue) -> Result<Arguments, Failure> {
    let json = Json::parse(written.get().as_bytes()).map_err(wrong)?;
    let arguments = json.as_object().ok_or_else(|| wrong("arguments: not an object"))?;
    Arguments::from_json(arguments).map_err(wrong)
}

fn key(jwk: &RawValue) -> Result<PublicKey, Failure> {
    PublicKey::from_jwk_text(jwk.get().as_bytes()).map_err(wrong)
}

// === What is answered ===

/// What a request presents: nothing if it has no rule.
#[derive(Default, Serialize)]
struct Presented<'a> {
    rule: Option<&'a str>,
    tool: Option<&'a str>,
    arguments: Option<Box<RawValue>>,
    headers: Vec<(String, String)>,
    possession: Option<&'static str>,
    needs_nonce: bool,
    proof: Option<Box<RawValue>>,
}

impl Failure {
    fn refused(refusal: &Refusal<'_>, request: &Request<'_>) -> Self {
        Self::Denied(refusal.denial.clone(), Answer::for_refusal(refusal, request))
    }

    fn json(&self) -> String {
        let answer = match self {
            Self::Denied(denial, answer) => json!({"denied": {
                "reason": denial.reason.code(),
                "argument": denial.argument,
                "step": denial.step.map(|step| step.name()),
                "title": denial.reason.title(),
                "status": answer.status,
                "headers": answer.headers,
                "body": String::from_utf8_lossy(&answer.body),
            }}),
            Self::Wrong(message) => json!({"error": message}),
        };
        answer.to_string()
    }
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        let answer = Answer::for_denial(&denial, None);
        Self::Denied(denial, answer)
    }
}

fn wrong(error: impl ToString) -> Failure {
    Failure::Wrong(error.to_string())
}

fn json(answer: &impl Serialize) -> Outcome {
    serde_json::to_string(answer).map_err(wrong)
}

/// Open at once.
const MAX_SERVICES: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = r#"{"credence_agent_rules":1,"issuers":["https://id.example"],"audience":["https://a.example"],
        "rules":[{"name":"charge","match":{"methods":["POST"],"path":"/v1/{account}"},"tool":"pay",
        "args":{"account":{"path":"account"},"amount":{"body":"/amount","type":"number"}}},
        {"name":"health","match":{"path":"/healthz"},"public":true}]}"#;
    const OPEN: &str = r#"{"open":{"origin":"https://a.example","audience":[]}}"#;

    fn request(operations: &mut Operations, name: &str, target: &str, more: &str, body: &str) -> String {
        let has_body = !body.is_empty();
        let headers = r#"[["Content-Type","application/json"]]"#;
        let operation = format!(
            r#"{{"{name}":{{"service":1,"request":{{"method":"POST","target":"{target}","headers":{headers},"has_body":{has_body}}}{more}}}}}"#
        );
        operations.answer(operation.as_bytes(), body.as_bytes())
    }

    #[test]
    fn wrong_operations_are_errors_that_say_what_is_wrong() {
        let mut operations = Operations::default();
        for (operation, said) in [
            ("", "EOF"),
            (r#"{"none":{}}"#, "unknown variant `none`"),
            (r#"{"hold":{"chain":"a"}}"#, "missing field `now`"),
            (r#"{"hold":{"chain":"a","now":1}}"#, "a JWS is three parts"),
            (r#"{"close":{"service":1,"more":2}}"#, "unknown field `more`"),
            (
                r#"{"open":{"origin":"https://a.example/b","audience":[]}}"#,
                "is not an origin",
            ),
        ] {
            let answer = operations.answer(operation.as_bytes(), b"");
            assert!(
                answer.starts_with(r#"{"error":"#) && answer.contains(said),
                "{operation}: {answer}"
            );
        }
        let answer = operations.answer(OPEN.as_bytes(), RULES.replace("a.example", "b.example").as_bytes());
        assert!(answer.contains("which is not at https://a.example"), "{answer}");
    }

    #[test]
    fn a_service_tells_what_a_request_needs() {
        let mut operations = Operations::default();
        let opened = operations.answer(OPEN.as_bytes(), RULES.as_bytes());
        assert_eq!(opened, r#"{"issuers":["https://id.example"],"service":1}"#);
        let mut ask =
            |name: &str, target: &str, more: &str, body: &str| request(&mut operations, name, target, more, body);
        assert_eq!(ask("reads_body", "/v1/acme", "", "{}"), r#"{"reads_body":true}"#);
        assert_eq!(ask("reads_body", "/healthz", "", ""), r#"{"reads_body":false}"#);
        let unheld = r#","credential":{"delegation":"a"},"id":"p","nonce":null,"now":1"#;
        assert!(ask("present", "/healthz", unheld, "").starts_with(r#"{"rule":null"#));
        for (target, body, reason) in [
            ("/other", "", "no_route"),
            ("/v1/a%2Fb", "{}", "path_ambiguous"),
            ("/v1/acme", r#"{"amount":5,"more":1}"#, "argument_unknown"),
            ("/v1/acme", r#"{"amount":"5"}"#, "argument_malformed"),
            ("/v1/acme", r#"{"amount":5}"#, "delegation_malformed"),
        ] {
            let answer = ask("present", target, unheld, body);
            assert!(
                answer.starts_with(r#"{"denied":{"#) && answer.contains(&format!(r#""reason":"{reason}""#)),
                "{target}: {answer}"
            );
        }
    }

    #[test]
    fn closed_services_are_unknown() {
        let mut operations = Operations::default();
        operations.answer(OPEN.as_bytes(), RULES.as_bytes());
        assert_eq!(operations.answer(br#"{"close":{"service":1}}"#, b""), "{}");
        let answer = request(&mut operations, "reads_body", "/healthz", "", "");
        assert!(answer.contains("closed"), "{answer}");
    }
}
