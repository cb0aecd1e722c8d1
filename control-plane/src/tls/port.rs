//! One port's certificate in force, and how it is replaced while the port is open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::material::{Contents, Material};
use super::metrics::TlsMetrics;
use super::which_port::Port;
use crate::settings::{PortTls, TlsSettings};
use crate::unusable::Unusable;
use credence_runtime::metrics::{Labels, labels};
use credence_runtime::throttle::Throttle;

/// What is in force on a port that speaks TLS. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct TlsPort {
    pub(crate) port: Port,
    pub(super) metrics: TlsMetrics,
    pub(super) failures: Arc<Throttle>,
    current: watch::Sender<Arc<Material>>,
    files: Arc<Mutex<Files>>,
}

/// Both ports, with the files they are kept from.
#[derive(Debug, Clone)]
pub(crate) struct TlsPorts(Vec<TlsPort>);

/// The files that say what is in force on a port.
#[derive(Debug)]
struct Files {
    settings: PortTls,
    /// What was last found in the files and could not be used, once or oftener.
    unusable: Option<UnusableFiles>,
}

#[derive(Debug, PartialEq, Eq)]
struct UnusableFiles {
    /// Absent where they could not even be read.
    contents: Option<Contents>,
    reported: bool,
}

// === impl TlsPort ===

impl TlsPort {
    pub(super) fn current(&self) -> Arc<Material> {
        Arc::clone(&self.current.borrow())
    }

    /// Hears of every change of what is in force.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<Material>> {
        self.current.subscribe()
    }
}

// === impl TlsPorts ===

impl TlsPorts {
    /// Reads the files of the ports that speak TLS.
    pub(crate) fn open(settings: &TlsSettings, metrics: &TlsMetrics) -> Result<Self, Unusable> {
        let open = |port| files_of(settings, port).map(|settings| TlsPort::open(port, settings, metrics));
        let ports = [Port::Http, Port::Grpc].into_iter().filter_map(open);
        ports.collect::<Result<_, _>>().map(Self)
    }

    /// What is in force on a port; nothing if it speaks plain text.
    pub(crate) fn of(&self, port: Port) -> Option<TlsPort> {
        self.0.iter().find(|open| open.port == port).cloned()
    }

    /// Looks after the files for as long as it is polled: what they hold is in force within [`INTERVAL`]. Their contents
    /// are compared, so that it does not matter in which way they were replaced.
    pub(crate) async fn follow_files(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let ports = self.clone();
            // Its panic has been reported; the next round tries again.
            let _ = tokio::task::spawn_blocking(move || ports.0.iter().for_each(TlsPort::look)).await;
        }
    }

    /// Takes over other files, or what the same ones hold now: of both ports, or of none.
    pub(crate) fn replace(&self, settings: &TlsSettings) -> Result<(), Unusable> {
        let replacement = |port: Port| match (self.of(port), files_of(settings, port)) {
            (Some(open), Some(settings)) => Ok(Some((open, settings, Material::read(port, settings)?))),
            (None, None) => Ok(None),
            _ => Err(Unusable(format!(
                "tls.{}: TLS cannot be switched on or off on a port that is open; restart the control plane for that",
                port.name()
            ))),
        };
        for (port, settings, material) in [replacement(Port::Http)?, replacement(Port::Grpc)?]
            .into_iter()
            .flatten()
        {
            let mut files = port.files.lock().unwrap_or_else(PoisonError::into_inner);
            files.settings = settings.clone();
            files.unusable = None;
            if port.current().digest != material.digest {
                port.put_in_force(material);
            }
        }
        Ok(())
    }
}

// === impl TlsPort: its files ===

impl TlsPort {
    fn open(port: Port, settings: &PortTls, metrics: &TlsMetrics) -> Result<Self, Unusable> {
        let material = Arc::new(Material::read(port, settings)?);
        let open = Self {
            port,
            metrics: metrics.clone(),
            failures: Arc::default(),
            current: watch::Sender::new(Arc::clone(&material)),
            files: Arc::new(Mutex::new(Files {
                settings: settings.clone(),
                unusable: None,
            })),
        };
        open.note(&material);
        Ok(open)
    }

    /// Puts in force what the files hold, if it is something else, and can be used.
    fn look(&self) {
        let (port, metrics) = (self.port, &self.metrics);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = Contents::read(port, &files.settings);
        if contents
            .as_ref()
            .is_ok_and(|contents| self.current().digest == contents.digest())
        {
            if files.unusable.take().is_some() {
                tracing::info!(port = port.name(), "the TLS files hold again what is in force");
            }
            metrics.files_current.get_or_create(&label(port)).set(1);
            return;
        }
        let parsed = match &contents {
            Ok(contents) => Material::parse(port, &files.settings, contents),
            Err(error) => Err(error.clone()),
        };
        let contents = contents.ok();
        match parsed {
            Ok(material) => {
                files.unusable = None;
                self.put_in_force(material);
            }
            Err(error) => {
                // A replacement of one file after the other is between the two for a moment: that is no news yet.
                let again = files.unusable.as_ref().filter(|unusable| unusable.contents == contents);
                let (seen, reported) = (again.is_some(), again.is_some_and(|unusable| unusable.reported));
                if seen && !reported {
                    tracing::error!(%error, port = port.name(), "the TLS files changed and cannot be used; what they held before stays in force until its certificate ends");
                    metrics.files_current.get_or_create(&label(port)).set(0);
                    metrics.reloads.get_or_create(&reload(port, "failure")).inc();
                }
                files.unusable = Some(UnusableFiles {
                    contents,
                    reported: seen,
                });
            }
        }
    }

    fn put_in_force(&self, material: Material) {
        let port = self.port;
        let material = Arc::new(material);
        self.note(&material);
        self.metrics.reloads.get_or_create(&reload(port, "success")).inc();
        tracing::info!(
            port = port.name(),
            expires = material.expires,
            "new TLS files are in force for new connections"
        );
        self.current.send_replace(material);
    }

    fn note(&self, material: &Material) {
        let label = label(self.port);
        self.metrics
            .certificate_expires
            .get_or_create(&label)
            .set(material.expires);
        self.metrics.files_current.get_or_create(&label).set(1);
    }
}

fn files_of(settings: &TlsSettings, port: Port) -> Option<&PortTls> {
    match port {
        Port::Http => settings.http.as_ref(),
        Port::Grpc => settings.grpc.as_ref(),
    }
}

fn label(port: Port) -> Labels<1> {
    labels([("port", port.name())])
}

fn reload(port: Port, outcome: &'static str) -> Labels<2> {
    labels([("port", port.name()), ("outcome", outcome)])
}

/// How often the files are looked at.
const INTERVAL: Duration = Duration::from_secs(2);
