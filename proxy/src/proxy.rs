//! Starts the proxy, and stops it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use credence_agent::service::Origin;
use credence_runtime::client_limits::{Bounds, Places, ShareMetrics, SharedLimit, Shares};
use credence_runtime::lifecycle::{Lifecycle, Phase};
use credence_runtime::settings::{SettingsError, Timeouts};
use credence_server::{BoundedListener, Connections, Port, Server, Unusable, operators};
use http::Uri;
use prometheus_client::registry::Registry;
use rustix::process::DumpableBehavior;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clients::{Client, ClientError};
use crate::credential::{Credential, CredentialError};
use crate::front::Front;
use crate::metrics::Metrics;
use crate::settings::{ClientSettings, Listen, Settings};
use crate::stdio::Bridge;
use crate::upstream::{Upstream, UpstreamError};

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A service cannot be used.
    #[error("services: {0}")]
    Service(#[from] UpstreamError),
    /// A credential cannot be used.
    #[error("credentials: {0}")]
    Credential(#[from] CredentialError),
    /// A client cannot be set up.
    #[error("clients: {0}")]
    Client(#[from] ClientError),
    /// Standard input cannot be read.
    #[error("standard input cannot be read: {0}")]
    Stdio(io::Error),
    /// The operator's port cannot be served.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It cannot listen.
    #[error("cannot listen on {0}: {1}; free it, or configure another one")]
    Listen(Listen, io::Error),
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    /// Where clients connect, with the ports that the system chose.
    pub addresses: Vec<(String, Option<SocketAddr>)>,
    /// The operator's port.
    pub admin: Option<SocketAddr>,
    stopping: CancellationToken,
    lifecycle: Lifecycle,
    fronts: JoinSet<()>,
    tasks: JoinSet<()>,
}

// === impl Proxy ===

impl Proxy {
    /// Opens keys and delegations, listens, and serves on the current tokio runtime. `admin` is the operator's port.
    ///
    /// # Errors
    /// See [`StartError`].
    pub async fn start(settings: &Settings, admin: Option<SocketAddr>) -> Result<Self, StartError> {
        let Held { services, credentials } = Held::open(settings)?;
        let mut registry = Registry::with_prefix("credence");
        let metrics = Arc::new(Metrics::new(&mut registry));
        let mut by_place: BTreeMap<&Listen, Vec<Arc<Client>>> = BTreeMap::new();
        for client in &settings.clients {
            let made = made(client, settings, &services, &credentials)?;
            by_place.entry(&client.listen).or_default().push(Arc::new(made));
        }
        for clients in by_place.values() {
            check_secrets(clients)?;
        }
        let stopping = CancellationToken::new();
        let (mut fronts, mut addresses) = (JoinSet::new(), Vec::new());
        for (listen, clients) in by_place {
            let limits = settings.limits.clone();
            let front = Front::listen(listen, clients, services.clone(), limits, Arc::clone(&metrics)).await;
            let front = front.map_err(|error| StartError::Listen(listen.clone(), error))?;
            addresses.push((listen.to_string(), front.address()));
            fronts.spawn(front.serve(stopping.clone()));
        }
        let mut tasks = JoinSet::new();
        let lifecycle = Lifecycle::default();
        let admin = match admin {
            None => None,
            Some(address) => {
                let listener = operators_listener(address, &mut registry).await?;
                let address = listener.address;
                let held = credentials.clone();
                let is_ready = move || held.iter().try_for_each(|credential| credential.check());
                let server = Server {
                    port: Port::Http,
                    tls: None,
                    router: operators(registry, is_ready),
                    request_timeout: Duration::from_secs(10),
                    timeouts: Timeouts::default(),
                    phase: lifecycle.watch(),
                };
                tasks.spawn(server.serve(listener));
                Some(address)
            }
        };
        for credential in credentials {
            tasks.spawn(credential.follow());
        }
        Ok(Self {
            addresses,
            admin,
            stopping,
            lifecycle,
            fronts,
            tasks,
        })
    }

    /// Lets running requests end, then stops.
    pub async fn shutdown(mut self) {
        self.stopping.cancel();
        self.lifecycle.enter(Phase::Stopped);
        while self.fronts.join_next().await.is_some() {}
        self.tasks.abort_all();
    }
}

/// Serves one client that speaks MCP over standard input and output, to the server at this URL. It is the client of this
/// name, or the only one. Its other settings about connections do not count.
///
/// # Errors
/// See [`StartError`].
pub async fn serve_stdio(settings: &Settings, url: &str, client: Option<&str>) -> Result<(), StartError> {
    let Held { services, credentials } = Held::open(settings)?;
    let found = match (client, settings.clients.as_slice()) {
        (None, [only]) => Some(only),
        (name, all) => all.iter().find(|client| Some(client.name.as_str()) == name),
    };
    let wrong = |problem: String| SettingsError::at("clients", problem);
    let found = found.ok_or_else(|| wrong("name the client that this is, with --client".to_owned()))?;
    let client = made(found, settings, &services, &credentials)?;
    let origin = Origin::of_url(url);
    let upstream = origin.and_then(|origin| services.iter().find(|service| service.origin.is_same(&origin)));
    let upstream =
        upstream.ok_or_else(|| SettingsError::at("services", format!("{url} is at none of them; add its origin")))?;
    let uri: Uri = url.parse().map_err(|_| wrong(format!("{url} is no URL")))?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let mut tasks = JoinSet::new();
    for credential in credentials {
        tasks.spawn(credential.follow());
    }
    let (client, upstream) = (Arc::new(client), Arc::clone(upstream));
    Bridge::serve(client, upstream, target, settings.limits.clone())
        .await
        .map_err(StartError::Stdio)
}

/// What several clients share.
struct Held {
    services: Vec<Arc<Upstream>>,
    credentials: Vec<Arc<Credential>>,
}

impl Held {
    fn open(settings: &Settings) -> Result<Self, StartError> {
        settings.check()?;
        // Programs of the same user could read its keys otherwise, and core dumps have them.
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let services = settings.services.iter();
        let services = services.map(|settings| Ok(Arc::new(Upstream::new(settings)?)));
        let services = services.collect::<Result<_, UpstreamError>>()?;
        let credentials = settings.credentials.iter();
        let credentials = credentials.map(|settings| Ok(Arc::new(Credential::open(settings)?)));
        let credentials = credentials.collect::<Result<_, CredentialError>>()?;
        Ok(Self { services, credentials })
    }
}

fn made(
    client: &ClientSettings,
    settings: &Settings,
    services: &[Arc<Upstream>],
    credentials: &[Arc<Credential>],
) -> Result<Client, StartError> {
    let credential = match &client.credential {
        Some(name) => credentials.iter().find(|credential| &credential.name == name),
        None => credentials.first(),
    };
    let unknown = || SettingsError::at("clients", format!("{} has no credential", client.name));
    let credential = credential.cloned().ok_or_else(unknown)?;
    let service = client.service.as_ref().and_then(|url| {
        let mut all = settings.services.iter().zip(services);
        all.find(|(settings, _)| &settings.url == url)
            .map(|(_, service)| Arc::clone(service))
    });
    Ok(Client::new(client, &settings.limits, credential, service)?)
}

/// With one secret, the first of two clients would count, whatever the other one may do.
fn check_secrets(clients: &[Arc<Client>]) -> Result<(), SettingsError> {
    let mut seen = BTreeSet::new();
    let double = clients
        .iter()
        .find(|client| client.secret.is_some_and(|secret| !seen.insert(secret)));
    match double {
        None => Ok(()),
        Some(client) => {
            let problem = format!(
                "{} has the secret of another client there; make it one of its own",
                client.name
            );
            Err(SettingsError::at("clients", problem))
        }
    }
}

async fn operators_listener(address: SocketAddr, registry: &mut Registry) -> Result<BoundedListener, Unusable> {
    let shares = Shares {
        credential_percent: 100,
        address_percent: 100,
    };
    let bounds = Bounds::new(MAX_OPERATOR_CONNECTIONS, shares);
    let places = Places::new(SharedLimit::ProbeConnections, bounds, &ShareMetrics::new(registry));
    BoundedListener::bind(address, "HTTP", Connections::new(places), Timeouts::default().silence).await
}

const MAX_OPERATOR_CONNECTIONS: usize = 64;
