//! The answer to a denied request.

use serde::Serialize;

use crate::decision::{Class, Denial};

/// A complete response, for the host to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status. The host turns it into 200 for a gRPC client, as gRPC requires.
    pub status: u16,
    /// Header names, in lower case, and values.
    pub headers: Vec<(&'static str, String)>,
    /// RFC 9457 problem JSON. For a gRPC client, the text of `grpc-message`.
    pub body: Vec<u8>,
    /// The `grpc-status`, for a gRPC client only.
    pub grpc_status: Option<u32>,
}

impl Answer {
    /// The answer to a denied request.
    ///
    /// `nonce` is for the next proof, if the rule requires one.
    pub fn for_denial(denial: &Denial, nonce: Option<&str>, is_grpc: bool) -> Self {
        let shown = denial.reason.shown();
        let class = shown.class();
        let mut headers = vec![("cache-control", "no-store".to_owned())];
        if let Some(error) = class.challenge() {
            let challenge = format!(r#"Delegation error="{error}", error_description="{}""#, shown.title());
            headers.push(("www-authenticate", challenge));
        }
        if class == Class::Unavailable {
            headers.push(("retry-after", RETRY_AFTER_SECONDS.to_string()));
        }
        if let Some(nonce) = nonce {
            headers.push(("delegation-nonce", nonce.to_owned()));
        }
        let body = if is_grpc {
            let argument = denial.argument.as_ref().map(|argument| format!(" ({argument})"));
            let message = format!("{}: {}{}", shown.code(), shown.title(), argument.unwrap_or_default());
            message.into_bytes()
        } else {
            headers.push(("content-type", "application/problem+json".to_owned()));
            let problem = Problem {
                kind: format!("urn:credence:reason:{}", shown.code()),
                title: shown.title(),
                status: class.status(),
                reason: shown.code(),
                argument: denial.argument.as_deref(),
            };
            // Strings and numbers always serialise. An empty body would still be a denial.
            serde_json::to_vec(&problem).unwrap_or_default()
        };
        Self {
            status: class.status(),
            headers,
            body,
            grpc_status: is_grpc.then(|| class.grpc_status()),
        }
    }
}

/// A problem document (RFC 9457) with two additional members.
#[derive(Serialize)]
struct Problem<'a> {
    /// Identifies the kind of problem; not a URL to fetch.
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    argument: Option<&'a str>,
}

/// Seconds until a retry after a 503. The missing state usually arrives within a second.
const RETRY_AFTER_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Reason;

    #[test]
    fn a_denial_is_a_problem_document() {
        let answer = Answer::for_denial(&Reason::Expired.into(), None, false);
        assert_eq!(answer.status, 401);
        assert_eq!(answer.grpc_status, None);
        assert_eq!(header(&answer, "content-type"), Some("application/problem+json"));
        assert_eq!(header(&answer, "cache-control"), Some("no-store"));
        assert_eq!(
            header(&answer, "www-authenticate"),
            Some(r#"Delegation error="invalid_token", error_description="The delegation has expired.""#)
        );
        assert_eq!(
            body(&answer),
            r#"{"type":"urn:credence:reason:expired","title":"The delegation has expired.","status":401,"reason":"expired"}"#
        );
    }

    #[test]
    fn a_denied_argument_is_named_and_cannot_break_out_of_the_json() {
        let argument = Some("a\"}\n".to_owned());
        let answer = Answer::for_denial(
            &Denial {
                reason: Reason::ArgumentUnknown,
                argument,
                step: None,
            },
            None,
            false,
        );
        assert!(
            body(&answer).ends_with(r#""reason":"argument_unknown","argument":"a\"}\n"}"#),
            "{}",
            body(&answer)
        );
        assert!(answer.headers.iter().all(|(_, value)| !value.contains('\n')));
    }

    #[test]
    fn every_signature_failure_looks_the_same_to_the_client() {
        let answers = [Reason::SignatureInvalid, Reason::IssuerUnknown, Reason::LinkageInvalid]
            .map(|reason| Answer::for_denial(&reason.into(), None, false));
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(body(&answers[0]).contains(r#""reason":"delegation_invalid""#));
    }

    #[test]
    fn only_a_503_has_retry_after_and_no_challenge() {
        let unavailable = Answer::for_denial(&Reason::Stale.into(), None, false);
        assert_eq!(unavailable.status, 503);
        assert_eq!(header(&unavailable, "retry-after"), Some("1"));
        assert_eq!(header(&unavailable, "www-authenticate"), None);
        let forbidden = Answer::for_denial(&Reason::ToolNotGranted.into(), None, false);
        assert_eq!(header(&forbidden, "retry-after"), None);
    }

    #[test]
    fn a_grpc_client_gets_a_status_and_a_message() {
        let denial = Denial {
            reason: Reason::ArgumentNotAllowed,
            argument: Some("amount".to_owned()),
            step: None,
        };
        let answer = Answer::for_denial(&denial, None, true);
        assert_eq!(answer.grpc_status, Some(7));
        assert_eq!(header(&answer, "content-type"), None);
        assert_eq!(
            body(&answer),
            "argument_not_allowed: The delegation does not allow this value of the argument. (amount)"
        );
    }

    fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
        answer
            .headers
            .iter()
            .find(|(candidate, _)| *candidate == name)
            .map(|(_, value)| value.as_str())
    }

    fn body(answer: &Answer) -> &str {
        std::str::from_utf8(&answer.body).unwrap()
    }
}
