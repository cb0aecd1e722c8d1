//! Client of a control plane's HTTP API.

mod tls;

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use credence_delegation::json::Json;
use ureq::http::Response;
use ureq::typestate::WithoutBody;
use ureq::{Agent, Body, RequestBuilder, Timeout};
use zeroize::Zeroizing;

use self::tls::TlsOptions;
use crate::failure::Failure;
use crate::{files, terminal};

/// The control plane to call, and the caller's credential.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ControlPlaneOptions {
    /// The control plane's HTTP API: an http:// or https:// URL.
    #[arg(
        long,
        value_name = "URL",
        env = "CREDENCE_CONTROL_PLANE",
        default_value = "http://127.0.0.1:7070"
    )]
    control_plane: String,

    /// The file with a token that permits this: the operator token of `credence serve`, or one from `credence token`.
    #[arg(long, value_name = "FILE", env = "CREDENCE_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsOptions,
}

/// Further replicas, each with a ledger of its own.
#[derive(Debug, clap::Args)]
pub(crate) struct OtherReplicas {
    /// Another replica, whose ledger is read too. Repeat it for each.
    #[arg(long, value_name = "URL")]
    also: Vec<String>,
}

/// A client of one control plane.
pub(crate) struct Client {
    agent: Agent,
    url: String,
    /// Absent if the client's certificate is the credential.
    authorization: Option<Zeroizing<String>>,
}

/// Why a stream could not be opened.
pub(crate) enum StreamError {
    /// A retry may succeed.
    Unavailable(Failure),
    /// A retry fails until the operator fixes the cause.
    Refused(Failure),
}

impl OtherReplicas {
    pub(crate) fn is_empty(&self) -> bool {
        self.also.is_empty()
    }

    /// The options for each replica, that of `first` first. All take the same credential.
    pub(crate) fn with(&self, first: &ControlPlaneOptions) -> Vec<ControlPlaneOptions> {
        let others = self.also.iter().map(|url| ControlPlaneOptions {
            control_plane: url.clone(),
            ..first.clone()
        });
        std::iter::once(first.clone()).chain(others).collect()
    }
}

impl ControlPlaneOptions {
    pub(crate) fn url(&self) -> &str {
        &self.control_plane
    }

    /// A client with a credential.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        if self.token_file.is_none() && self.tls.cert.is_none() {
            return Err(Failure::input(
                "no credential: give --token-file, set CREDENCE_TOKEN_FILE, or give a certificate as --cert",
            ));
        }
        self.client_or_anonymous()
    }

    /// A client with a credential if there is one: for requests that may need none.
    pub(crate) fn client_or_anonymous(&self) -> Result<Client, Failure> {
        let authorization = self.token_file.as_deref().map(authorization).transpose()?;
        Ok(Client {
            authorization,
            ..self.anonymous_client()?
        })
    }

    /// A client without a token.
    pub(crate) fn anonymous_client(&self) -> Result<Client, Failure> {
        let url = self.control_plane.trim_end_matches('/').to_owned();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Failure::input(format!(
                "--control-plane {url}: give an http:// or https:// URL, such as https://credence.example:7070"
            )));
        }
        let agent = Agent::config_builder()
            .tls_config(self.tls.config(&url)?)
            .timeout_global(Some(TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .http_status_as_error(false)
            // Redirects are not followed, so that the token reaches only the control plane.
            .max_redirects(0);
        Ok(Client {
            agent: agent.build().new_agent(),
            url,
            authorization: None,
        })
    }
}

/// The value of the `authorization` header.
fn authorization(token_file: &Path) -> Result<Zeroizing<String>, Failure> {
    let token = files::read(token_file, "the token")?;
    let token = std::str::from_utf8(&token)
        .ok()
        .map(str::trim)
        .filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or_else(|| {
            Failure::input(format!(
                "the token file {} holds no token; give the operator token file of `credence serve`, or a file from \
                 `credence token`",
                token_file.display()
            ))
        })?;
    Ok(Zeroizing::new(format!("Bearer {token}")))
}

impl Client {
    /// Posts JSON for a change that is safe to repeat. Returns the text of the answer.
    pub(crate) fn post(&self, path: &str, json: &str) -> Result<String, Failure> {
        let request = self.authorized(self.agent.post(format!("{}{path}", self.url)));
        let response = request.content_type("application/json").send(json);
        self.answer(response, |error| self.change_unconfirmed(error))
    }

    /// Sends a signed revocation statement, which is its own credential. Returns the JSON text of the answer.
    pub(crate) fn state(&self, statement: &str, wait: &str) -> Result<String, Failure> {
        let response = self
            .agent
            .post(format!("{}/v1/revocations/statements?wait={wait}", self.url))
            .content_type("application/revocation+jwt")
            .send(statement);
        self.answer(response, |error| self.change_unconfirmed(error))
    }

    /// Gets JSON with these query parameters. Returns the text of the answer.
    pub(crate) fn get(&self, path: &str, parameters: &[(&str, String)]) -> Result<String, Failure> {
        let response = self.request(path, parameters).call();
        self.answer(response, |error| self.unreachable(error))
    }

    /// Gets bytes; `None` if the control plane no longer holds them (410).
    pub(crate) fn fetch(&self, path: &str) -> Result<Option<Vec<u8>>, Failure> {
        match self.request(path, &[]).call() {
            Ok(mut response) if response.status() == 200 => {
                let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES);
                Ok(Some(body.read_to_vec().map_err(|error| self.unreachable(&error))?))
            }
            Ok(response) if response.status() == 410 => Ok(None),
            response => Err(self.refusal(response, path)),
        }
    }

    /// Opens an event stream. `position` is the last event that was received.
    pub(crate) fn stream(
        &self,
        path: &str,
        parameters: &[(&str, String)],
        position: Option<&str>,
    ) -> Result<impl Read + Send + use<>, StreamError> {
        let mut request = self.request(path, parameters);
        if let Some(position) = position {
            request = request.header("last-event-id", position);
        }
        let response = request
            .config()
            .timeout_global(None)
            .timeout_recv_response(Some(TIMEOUT))
            .build()
            .call();
        match response {
            Ok(response) if response.status() == 200 => Ok(response.into_body().into_reader()),
            Ok(response) => {
                let status = response.status();
                let failure = self.refusal(Ok(response), path);
                Err(match status.is_server_error() || status == 429 {
                    true => StreamError::Unavailable(failure),
                    false => StreamError::Refused(failure),
                })
            }
            Err(error) => Err(StreamError::Unavailable(self.unreachable(&error))),
        }
    }

    /// The failure of an unexpected answer.
    fn refusal(&self, response: Result<Response<Body>, ureq::Error>, path: &str) -> Failure {
        match self.answer(response, |error| self.unreachable(error)) {
            Err(failure) => failure,
            Ok(_) => Failure::operation(format!("{}{path} was not answered as expected", self.url)),
        }
    }

    fn request(&self, path: &str, parameters: &[(&str, String)]) -> RequestBuilder<WithoutBody> {
        let parameters = parameters.iter().map(|(name, value)| (*name, value.as_str()));
        let request = self.agent.get(format!("{}{path}", self.url));
        self.authorized(request).query_pairs(parameters)
    }

    /// Adds the credential, if there is one.
    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("authorization", authorization.as_str()),
            None => request,
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        if let Some(disagreement) = tls::disagreement(error) {
            return Failure::operation(format!(
                "the TLS handshake with the control plane at {} failed: {disagreement}",
                self.url
            ));
        }
        Failure::operation(format!(
            "the control plane at {} cannot be reached: {error}; start it with `credence serve`, or name another one \
             with --control-plane",
            self.url
        ))
    }

    /// The failure of a change. Its outcome is known only if no byte was sent.
    fn change_unconfirmed(&self, error: &ureq::Error) -> Failure {
        if certainly_not_sent(error) || tls::disagreement(error).is_some() {
            return self.unreachable(error);
        }
        Failure::operation(format!(
            "the outcome is unknown: the request was sent to the control plane at {}, but no answer came ({error}). \
             The change may be in force, may still come into force, or may be lost. Run the same command again until \
             it succeeds: repeating it is harmless",
            self.url
        ))
    }

    fn answer(
        &self,
        response: Result<Response<Body>, ureq::Error>,
        unanswered: impl Fn(&ureq::Error) -> Failure,
    ) -> Result<String, Failure> {
        let mut response = response.map_err(|error| unanswered(&error))?;
        let retry_after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let status = response.status();
        let text = response
            .body_mut()
            .with_config()
            .limit(MAX_ANSWER_BYTES)
            .read_to_string()
            .map_err(|error| unanswered(&error))?;
        if status.is_success() {
            return Ok(text);
        }
        let detail = Json::parse(text.as_bytes())
            .ok()
            .and_then(|json| json.as_object()?.text("detail").map(terminal::printable))
            .unwrap_or_else(|| "no reason given".to_owned());
        let cure = match (status.as_u16(), retry_after) {
            (401 | 403, _) if self.authorization.is_some() => {
                "; give a token with the role for this as --token-file, or a certificate as --cert".to_owned()
            }
            (404 | 405, _) => "; is --control-plane the URL of a control plane's HTTP API?".to_owned(),
            (_, Some(seconds)) => format!("; try again in {} s", terminal::printable(&seconds)),
            (_, None) => String::new(),
        };
        Err(Failure::operation(format!(
            "the control plane refused ({}): {detail}{cure}",
            status.as_u16()
        )))
    }
}

/// The failure of an answer that this version does not expect.
pub(crate) fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::operation(format!(
        "the control plane's answer cannot be read: {error}; is the control plane of the same version?"
    ))
}

/// Whether a request failed before any byte of it was sent.
fn certainly_not_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Timeout(which) => matches!(which, Timeout::Resolve | Timeout::Connect),
        ureq::Error::Io(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::AddrNotAvailable
        ),
        ureq::Error::Http(_)
        | ureq::Error::BadUri(_)
        | ureq::Error::HostNotFound
        | ureq::Error::InvalidProxyUrl
        | ureq::Error::ConnectProxyFailed(_)
        | ureq::Error::ConnectionFailed => true,
        _ => false,
    }
}

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request may take: a revocation waits for the disk.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of an answer. A page of a thousand audit events is far smaller.
const MAX_ANSWER_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_unconfirmed_unless_it_was_certainly_not_sent() {
        let client = Client {
            agent: Agent::new_with_defaults(),
            url: "http://127.0.0.1:7070".to_owned(),
            authorization: None,
        };
        let said = |error: ureq::Error| client.change_unconfirmed(&error).to_string();
        for which in [Timeout::Global, Timeout::RecvResponse, Timeout::RecvBody] {
            let said = said(ureq::Error::Timeout(which));
            assert!(said.starts_with("the outcome is unknown"), "{said}");
            assert!(said.ends_with("repeating it is harmless"), "{said}");
        }
        assert!(said(ureq::Error::Io(ErrorKind::ConnectionReset.into())).contains("unknown"));
        for error in [
            ureq::Error::Timeout(Timeout::Connect),
            ureq::Error::Io(ErrorKind::ConnectionRefused.into()),
            ureq::Error::HostNotFound,
        ] {
            assert!(said(error).contains("cannot be reached"));
        }
    }
}
