//! One port's certificate in force, and its replacement while the port is open.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::material::{Contents, Material};
use super::metrics::TlsMetrics;
use super::settings::{PortTls, TlsSettings};
use super::which_port::Port;
use crate::unusable::Unusable;
use credence_runtime::metrics::{Labels, labels};
use credence_runtime::throttle::Throttle;

/// The TLS material in force on a port. Cheap to clone.
#[derive(Debug, Clone)]
pub struct TlsPort {
    pub(crate) port: Port,
    pub(super) metrics: TlsMetrics,
    pub(super) failures: Arc<Throttle>,
    current: watch::Sender<Arc<Material>>,
    files: Arc<Mutex<Files>>,
}

/// Both ports, with their files.
#[derive(Debug, Clone)]
pub struct TlsPorts(Vec<TlsPort>);

/// The files of a port.
#[derive(Debug)]
struct Files {
    settings: PortTls,
    /// The last unusable contents, and whether they were found more than once.
    unusable: Option<UnusableFiles>,
}

#[derive(Debug, PartialEq, Eq)]
struct UnusableFiles {
    /// Absent if the files could not be read.
    contents: Option<Contents>,
    reported: bool,
}

// === impl TlsPort ===

impl TlsPort {
    pub(super) fn current(&self) -> Arc<Material> {
        Arc::clone(&self.current.borrow())
    }

    /// Notifies of every change of the material in force.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<Material>> {
        self.current.subscribe()
    }
}

// === impl TlsPorts ===

impl TlsPorts {
    /// Reads the files of the ports with TLS.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn open(settings: &TlsSettings, metrics: &TlsMetrics) -> Result<Self, Unusable> {
        let open = |port| files_of(settings, port).map(|settings| TlsPort::open(port, settings, metrics));
        let ports = [Port::Http, Port::Grpc].into_iter().filter_map(open);
        ports.collect::<Result<_, _>>().map(Self)
    }

    /// The TLS of a port; none if it is plaintext.
    #[must_use]
    pub fn of(&self, port: Port) -> Option<TlsPort> {
        self.0.iter().find(|open| open.port == port).cloned()
    }

    /// Checks the files for as long as it is polled: changed contents are in force within two seconds. The contents
    /// are compared, so it does not matter how the files were replaced.
    pub async fn follow_files(self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let ports = self.clone();
            // A panic was already reported; the next round tries again.
            let _ = tokio::task::spawn_blocking(move || ports.0.iter().for_each(TlsPort::look)).await;
        }
    }

    /// Applies other files, or the present contents of the same ones: for both ports, or for none.
    ///
    /// # Errors
    /// The first file that cannot be used, or a port whose TLS would be switched on or off.
    pub fn replace(&self, settings: &TlsSettings) -> Result<(), Unusable> {
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

    /// Puts the files' contents in force, if they have changed and can be used.
    fn look(&self) {
        let (port, metrics) = (self.port, &self.metrics);
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = Contents::read(port, &files.settings);
        if contents
            .as_ref()
            .is_ok_and(|contents| self.current().digest == contents.digest())
        {
            if files.unusable.take().is_some() {
                tracing::info!(port = port.name(), "the TLS files hold the certificate in force again");
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
                // While the files are replaced one by one, they are inconsistent for a moment. This is not reported
                // yet.
                let again = files.unusable.as_ref().filter(|unusable| unusable.contents == contents);
                let (seen, reported) = (again.is_some(), again.is_some_and(|unusable| unusable.reported));
                if seen && !reported {
                    tracing::error!(%error, port = port.name(), "the TLS files changed and cannot be used; the earlier \
                        certificate stays in force until it expires");
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

/// How often the files are checked.
const INTERVAL: Duration = Duration::from_secs(2);
