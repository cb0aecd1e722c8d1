//! Compares what a service read with what the filter allowed.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::policy::{self, NONCE, Needed};
use super::reading::Reading;
use crate::ISSUER;
use crate::audit::Decision;

/// The subject of the delegations.
pub const SUBJECT: &str = "alice";

/// The subject of forged identity headers.
pub const FORGED: &str = "mallory";

/// Headers that override parts of a request after the decision; the filter removes them.
const OVERRIDES: &[&str] = &[
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-forwarded-method",
    "x-forwarded-uri",
    "x-original-method",
    "x-original-uri",
    "x-forwarded-prefix",
    "script-name",
    "x-script-name",
    "path-info",
    "x-forwarded-host",
    "x-forwarded-server",
    "x-original-host",
    "x-real-host",
    "x-host",
    "x-http-host",
    "forwarded",
];

/// Headers that rules read. An application that merges trailers into headers must not find them in trailers.
const READ_BY_RULES: &[&str] = &["x-tenant", "x-stage", "x-beta", "x-teaser"];

/// An allowed request whose evidence is to be compared.
#[derive(Debug, Clone)]
pub struct Allowed {
    /// Envoy's request id.
    pub request_id: String,
    /// The tool.
    pub tool: String,
    /// The arguments as the service read them.
    pub arguments: BTreeMap<&'static str, String>,
}

/// Whether the service read what the filter allowed. If a delegation allowed it, returns what the evidence must say.
///
/// # Errors
/// The difference.
pub fn judge(reading: &Reading, nonce: &str) -> Result<Option<Allowed>, String> {
    if reading.headers.get(NONCE).map(String::as_str) != Some(nonce) {
        return Err("the answer is that to another request".to_owned());
    }
    for name in OVERRIDES {
        if let Some(value) = reading.headers.get(*name).or_else(|| reading.trailers.get(*name)) {
            return Err(format!("the service reads the override {name}: {value}"));
        }
    }
    for (name, value) in &reading.trailers {
        if name.starts_with(IDENTITY) || READ_BY_RULES.contains(&name.as_str()) {
            return Err(format!("the service reads the trailer {name}: {value}"));
        }
    }
    let identity: BTreeMap<&str, &str> = reading
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(IDENTITY)?, value.as_str())))
        .collect();
    let needed = policy::needed(reading);
    let Some(tool) = identity.get("tool") else {
        if let Some((name, value)) = identity.first_key_value() {
            return Err(format!(
                "the service reads {IDENTITY}{name}: {value}, and no delegation was used"
            ));
        }
        return match needed {
            Needed::Anything | Needed::Nothing => Ok(None),
            Needed::Tool(tool, _) => Err(format!(
                "the service ran {}, for which {tool} is needed, and no delegation was used",
                reading.handler
            )),
        };
    };
    check_identity(&identity)?;
    let expected = match needed {
        Needed::Anything => return Ok(None),
        Needed::Nothing => {
            return Err(format!(
                "the filter asked for {tool}, and the service ran {}, which needs nothing",
                reading.handler
            ));
        }
        Needed::Tool(expected, _) if expected != *tool => {
            return Err(format!(
                "the filter asked for {tool}, and the service ran {}, for which {expected} is needed",
                reading.handler
            ));
        }
        Needed::Tool(_, arguments) => arguments,
    };
    let request_id = reading.headers.get("x-request-id").cloned();
    Ok(Some(Allowed {
        request_id: request_id.ok_or("the request has no x-request-id")?,
        tool: (*tool).to_owned(),
        arguments: expected
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect(),
    }))
}

/// Compares the arguments with the values that [`policy::NARROW`] grants.
///
/// # Errors
/// The difference.
pub fn check_narrow(allowed: &Allowed) -> Result<(), String> {
    for (name, value) in &allowed.arguments {
        let granted = match *name {
            "tenant" => "acme",
            "method" => "GET",
            "name" => "book",
            "stage" => "beta",
            "q" => "tea",
            "host" if value.is_empty() => continue,
            "host" if allowed.tool == "admin.host" => "admin.example",
            "host" => "payments.example",
            _ => continue,
        };
        if value != granted {
            return Err(format!(
                "{} is granted for {name} {granted:?} alone, and the service reads {value:?}",
                allowed.tool
            ));
        }
    }
    Ok(())
}

/// Whether the evidence matches what the service read.
///
/// # Errors
/// The difference.
pub fn check_evidence(allowed: &Allowed, decision: &Decision) -> Result<(), String> {
    if (decision.decision.as_str(), decision.tool.as_str()) != ("allow", allowed.tool.as_str()) {
        return Err(format!(
            "the service was told {}, and the evidence says {} of {}",
            allowed.tool, decision.decision, decision.tool
        ));
    }
    let recorded: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&decision.arguments)
        .map_err(|error| format!("the evidence's arguments {:?}: {error}", decision.arguments))?;
    let mut recorded: BTreeMap<&str, String> = recorded
        .iter()
        .map(|(name, value)| {
            // Other values than strings are compared as written.
            let text = serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned());
            (name.as_str(), text)
        })
        .collect();
    let mut read = allowed.arguments.clone();
    if read.get("host").is_some_and(String::is_empty) {
        // For an invalid host, Werkzeug gives an empty text: the service has no host.
        recorded.remove("host");
    }
    // lighttpd drops headers without a value.
    recorded.retain(|_, value| !value.is_empty());
    read.retain(|_, value| !value.is_empty());
    if recorded != read {
        return Err(format!(
            "{}: the filter recorded {recorded:?}, and the service reads {read:?}",
            allowed.tool
        ));
    }
    Ok(())
}

const IDENTITY: &str = "x-delegation-";

fn check_identity(identity: &BTreeMap<&str, &str>) -> Result<(), String> {
    for (name, value) in identity {
        let is_right = match *name {
            // Values are percent-encoded.
            "issuer" => value.replace("%3A", ":").replace("%2F", "/") == ISSUER,
            "subject" => *value == SUBJECT,
            "proof" => *value == "none",
            "tool" | "id" | "agent" => !value.contains(FORGED),
            _ => false,
        };
        if !is_right {
            return Err(format!(
                "the service reads {IDENTITY}{name}: {value}, which the filter does not say"
            ));
        }
    }
    if identity.contains_key("subject") {
        Ok(())
    } else {
        Err(format!("the service reads no {IDENTITY}subject"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::reading::VIRTUAL_HOST;
    use super::*;

    fn reading(handler: &str, headers: &[(&str, &str)]) -> Reading {
        let all = [(NONCE, "1"), ("x-request-id", "id"), (VIRTUAL_HOST, "other")];
        let headers = all.iter().chain(headers);
        Reading {
            version: String::new(),
            handler: handler.to_owned(),
            captures: BTreeMap::new(),
            method: "GET".to_owned(),
            host: Some("payments.example".to_owned()),
            query: BTreeMap::new(),
            headers: headers
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            trailers: BTreeMap::new(),
        }
    }

    const ALICE: &[(&str, &str)] = &[
        ("x-delegation-subject", SUBJECT),
        ("x-delegation-tool", "tenant.read"),
        ("x-tenant", "acme"),
    ];

    #[test]
    fn a_protected_handler_without_a_delegation_is_a_disagreement() {
        assert!(judge(&reading("tenant", &[]), "1").is_err());
        assert!(judge(&reading("public", &[]), "1").is_ok());
    }

    #[test]
    fn a_forged_identity_is_a_disagreement_with_a_delegation_and_without() {
        let forged = [("x-delegation-subject", FORGED)];
        assert!(judge(&reading("public", &forged), "1").is_err());
        assert!(judge(&reading("tenant", &[ALICE, &forged].concat()), "1").is_err());
        assert!(judge(&reading("tenant", ALICE), "1").is_ok());
    }

    #[test]
    fn another_tool_than_that_of_the_handler_is_a_disagreement() {
        assert!(judge(&reading("file", ALICE), "1").is_err());
        assert!(judge(&reading("public", ALICE), "1").is_err());
    }

    #[test]
    fn an_override_is_a_disagreement() {
        assert!(judge(&reading("public", &[("x-http-method-override", "POST")]), "1").is_err());
    }

    #[test]
    fn the_answer_to_another_request_is_a_disagreement() {
        assert!(judge(&reading("public", &[]), "2").is_err());
    }

    #[test]
    fn another_argument_than_the_granted_one_is_a_disagreement() {
        let mut allowed = judge(&reading("tenant", ALICE), "1").unwrap().unwrap();
        assert_eq!(check_narrow(&allowed), Ok(()));
        allowed.arguments.insert("tenant", "evil".to_owned());
        assert!(check_narrow(&allowed).is_err());
    }
}
