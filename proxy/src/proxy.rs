//! Starts the proxy, and stops it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use credence_agent::service::Origin;
use credence_runtime::client_limits::ShareMetrics;
use credence_runtime::lifecycle::{Lifecycle, Phase};
use credence_runtime::settings::SettingsError;
use credence_server::{Unusable, operators};
use http::Uri;
use prometheus_client::registry::Registry;
use rustix::process::DumpableBehavior;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clients::{Client, ClientError};
use crate::credential::Credential;
use crate::front::Front;
use crate::metrics::Metrics;
use crate::settings::{ClientSettings, Listen, Settings, is_same};
use crate::stdio::Bridge;
use crate::upstream::Upstream;

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting cannot be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Standard input cannot be read.
    #[error("standard input cannot be read: {0}")]
    Stdio(io::Error),
    /// The operator's port cannot be served.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// It cannot listen.
    #[error("cannot listen on {0}: {1}; is it in use, and is its folder there?")]
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
        let held = Held::open(settings)?;
        let mut registry = Registry::with_prefix("credence");
        let metrics = Arc::new(Metrics::new(&mut registry));
        let mut by_place: BTreeMap<&Listen, Vec<Arc<Client>>> = BTreeMap::new();
        let mut secrets = BTreeSet::new();
        for (index, own) in settings.clients.iter().enumerate() {
            let client = held.client(own, settings).map_err(at("clients", index))?;
            // The first of two would count, even for requests of the other one.
            let is_known = |secret| !secrets.insert((&own.listen, secret));
            if client.secret.is_some_and(is_known) {
                let problem = "another client there has this secret; make it one of its own";
                return Err(SettingsError::at(format!("clients[{index}].secret_file"), problem).into());
            }
            by_place.entry(&own.listen).or_default().push(Arc::new(client));
        }
        let stopping = CancellationToken::new();
        let (mut fronts, mut addresses) = (JoinSet::new(), Vec::new());
        for (listen, clients) in by_place {
            let limits = settings.limits.clone();
            let front = Front::listen(listen, clients, held.services.clone(), limits, Arc::clone(&metrics)).await;
            let front = front.map_err(|error| StartError::Listen(listen.clone(), error))?;
            addresses.push((listen.to_string(), front.address()));
            fronts.spawn(front.serve(stopping.clone()));
        }
        let mut tasks = JoinSet::new();
        let lifecycle = Lifecycle::default();
        let admin = match admin {
            None => None,
            Some(address) => {
                let (credentials, shares) = (held.credentials.clone(), ShareMetrics::new(&mut registry));
                let is_ready = move || credentials.iter().try_for_each(|credential| credential.check());
                let (address, served) = operators(address, registry, is_ready, lifecycle.watch(), &shares).await?;
                tasks.spawn(served);
                Some(address)
            }
        };
        held.follow(&mut tasks);
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
    let held = Held::open(settings)?;
    let found = match (client, settings.clients.as_slice()) {
        (None, [only]) => Some(only),
        (name, all) => all.iter().find(|client| Some(client.name.as_str()) == name),
    };
    let wrong = |problem: String| SettingsError::at("clients", problem);
    let found = found.ok_or_else(|| {
        let names: Vec<_> = settings.clients.iter().map(|client| client.name.as_str()).collect();
        wrong(format!(
            "name the one that this is with --client: {}",
            names.join(" or ")
        ))
    })?;
    let client = held.client(found, settings).map_err(|error| wrong(error.to_string()))?;
    let origin = Origin::of_url(url);
    let upstream = origin.and_then(|origin| held.services.iter().find(|service| service.origin.is_same(&origin)));
    let upstream =
        upstream.ok_or_else(|| SettingsError::at("services", format!("{url} is at none of them; add its origin")))?;
    let uri: Uri = url.parse().map_err(|_| wrong(format!("{url} is no URL")))?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let (client, upstream) = (Arc::new(client), Arc::clone(upstream));
    let mut tasks = JoinSet::new();
    held.follow(&mut tasks);
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
        let services = settings.services.iter().enumerate();
        let services = services.map(|(index, own)| Upstream::new(own).map_err(at("services", index)));
        let credentials = settings.credentials.iter().enumerate();
        let credentials = credentials.map(|(index, own)| Credential::open(own).map_err(at("credentials", index)));
        let services = services
            .map(|service| service.map(Arc::new))
            .collect::<Result<_, _>>()?;
        let credentials = credentials
            .map(|credential| credential.map(Arc::new))
            .collect::<Result<_, _>>()?;
        Ok(Self { services, credentials })
    }

    fn client(&self, client: &ClientSettings, settings: &Settings) -> Result<Client, ClientError> {
        // Checked: the names are known, and only one credential needs none.
        let named =
            |credential: &&Arc<Credential>| client.credential.as_ref().is_none_or(|name| *name == credential.name);
        let credential = self.credentials.iter().find(named).ok_or(ClientError::NoCredential)?;
        let mut services = settings.services.iter().zip(&self.services);
        let service = client
            .service
            .as_ref()
            .and_then(|url| services.find(|(settings, _)| is_same(&settings.url, url)));
        let service = service.map(|(_, service)| Arc::clone(service));
        Client::new(client, &settings.limits, Arc::clone(credential), service)
    }

    /// Keeps them up to date.
    fn follow(self, tasks: &mut JoinSet<()>) {
        for service in self.services {
            tasks.spawn(service.follow());
        }
        for credential in self.credentials {
            tasks.spawn(credential.follow());
        }
    }
}

fn at<E: ToString>(list: &str, index: usize) -> impl Fn(E) -> SettingsError {
    move |error| SettingsError::at(format!("{list}[{index}]"), error.to_string())
}
