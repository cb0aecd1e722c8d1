//! Asks a person: a page on this machine that leads to the issuer, and the one to which it returns (RFC 8252).

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use credence_agent::terminal::{printable, shortened};
use credence_runtime::throttle::Throttle;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use crate::issuer::{Asked, Issuer, Tokens};
use crate::peer::peer_uid;

/// A page of the proxy where a person begins.
#[derive(Debug)]
pub(crate) struct Consent {
    listener: TcpListener,
    visit: Arc<Visit>,
    granted: mpsc::Receiver<Tokens>,
    places: Arc<Semaphore>,
    /// Connections of other users.
    strangers: Throttle,
}

#[derive(Debug)]
struct Visit {
    issuer: Issuer,
    address: SocketAddr,
    /// The latest ones last.
    asked: Mutex<VecDeque<Asked>>,
    granted: mpsc::Sender<Tokens>,
}

// === impl Consent ===

impl Consent {
    pub(crate) async fn open(issuer: Issuer) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (sender, granted) = mpsc::channel(1);
        let visit = Arc::new(Visit {
            issuer,
            address,
            asked: Mutex::default(),
            granted: sender,
        });
        Ok(Self {
            listener,
            visit,
            granted,
            places: Arc::new(Semaphore::new(MAX_VISITS)),
            strangers: Throttle::default(),
        })
    }

    /// The page to open in a browser of this machine.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.visit.address)
    }

    /// Waits until a person has granted it.
    pub(crate) async fn granted(&mut self) -> io::Result<Tokens> {
        loop {
            tokio::select! {
                tokens = self.granted.recv() => match tokens {
                    Some(tokens) => return Ok(tokens),
                    None => return Err(io::ErrorKind::BrokenPipe.into()),
                },
                accepted = self.listener.accept() => {
                    let Ok((stream, peer)) = accepted else {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    };
                    // Another user would grant their own authority.
                    let uid = peer_uid(&stream, peer, self.visit.address);
                    if !uid.is_some_and(|uid| self.visit.issuer.settings().uids.contains(&uid)) {
                        if let Some(attempts) = self.strangers.count(Instant::now()) {
                            tracing::warn!(uid, attempts, "another user opened the page of consent; see `issuer.uids`");
                        }
                        continue;
                    }
                    let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
                        continue;
                    };
                    let visit = Arc::clone(&self.visit);
                    tokio::spawn(async move {
                        let _place = place;
                        let service = service_fn(move |request| {
                            let visit = Arc::clone(&visit);
                            async move { Ok::<_, Infallible>(visit.answer(&request).await) }
                        });
                        let mut builder = http1::Builder::new();
                        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
                        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                    });
                }
            }
        }
    }
}

// === impl Visit ===

impl Visit {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let own = self.address.to_string();
        let is_own = request
            .headers()
            .get(http::header::HOST)
            .is_some_and(|host| host.as_bytes() == own.as_bytes());
        // A web page could begin for the person otherwise.
        let site = request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_wanted = site.is_none_or(|site| site == b"none" || site == b"same-origin");
        let is_return = request.uri().path() == "/callback";
        if !is_own || request.method() != Method::GET || !(is_wanted || is_return) {
            return page(StatusCode::BAD_REQUEST, "This page is opened by its address only.");
        }
        match request.uri().path() {
            "/" => self.begin().await,
            "/callback" => self.finish(request.uri().query().unwrap_or_default()).await,
            _ => page(StatusCode::NOT_FOUND, "There is no such page."),
        }
    }

    /// Leads to the issuer. The request is pushed only now: it counts for a minute and a half.
    async fn begin(&self) -> Response<Full<Bytes>> {
        match self.issuer.ask(&format!("http://{}/callback", self.address)).await {
            Ok(asked) => {
                let mut response = page(StatusCode::SEE_OTHER, "Continue at the issuer.");
                if let Ok(location) = HeaderValue::from_str(&asked.page) {
                    response.headers_mut().insert(LOCATION, location);
                }
                let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                if all.len() >= MAX_ASKED {
                    all.pop_front();
                }
                all.push_back(asked);
                response
            }
            Err(error) => {
                tracing::warn!(issuer = self.issuer.settings().url, %error, "a person cannot be asked");
                let text = "The issuer cannot be asked. The proxy's log says why.";
                page(StatusCode::BAD_GATEWAY, text)
            }
        }
    }

    async fn finish(&self, query: &str) -> Response<Full<Bytes>> {
        let parameters: BTreeMap<_, _> = url::form_urlencoded::parse(query.as_bytes()).collect();
        let parameter = |name: &str| parameters.get(name).map(|value| value.as_ref());
        let asked = parameter("state").and_then(|state| {
            let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let found = all.iter().position(|asked| asked.state == state)?;
            all.remove(found)
        });
        let Some(asked) = asked else {
            return page(StatusCode::BAD_REQUEST, "The proxy did not ask for this. Begin again.");
        };
        // RFC 9207: else another issuer could have this one's code sent to itself.
        if parameter("iss") != Some(self.issuer.settings().url.as_str()) {
            return page(StatusCode::BAD_REQUEST, "Another issuer answered. Begin again.");
        }
        let Some(code) = parameter("code") else {
            let said = |name| printable(&shortened(parameter(name).unwrap_or_default()));
            let (error, description) = (said("error"), said("error_description"));
            tracing::warn!(error, description, "the issuer or the person did not grant it");
            return page(StatusCode::OK, "Nothing was granted. The proxy's log says why.");
        };
        match self.issuer.redeem(&asked, code).await {
            Ok(tokens) => {
                let _ = self.granted.try_send(tokens);
                let text = "The agent can work for you now. You can close this page.";
                page(StatusCode::OK, text)
            }
            Err(error) => {
                tracing::warn!(%error, "a code cannot be redeemed");
                let text = "The issuer gave no delegation. The proxy's log says why.";
                page(StatusCode::BAD_GATEWAY, text)
            }
        }
    }
}

fn page(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    response
}

/// Pages that a person has opened and not finished.
const MAX_ASKED: usize = 16;
/// Connections at once.
const MAX_VISITS: usize = 8;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const HEAD_TIME: Duration = Duration::from_secs(10);
