//! The log of servers, on standard error.

mod log_output;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::log_output::Flush;
use crate::failure::Failure;

/// What is logged, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Logging {
    /// Log filter, such as `credence_control_plane=debug`.
    #[arg(long, value_name = "FILTER", env = "CREDENCE_LOG", default_value = "info")]
    log: String,

    /// Format on standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

// === impl Logging ===

impl Logging {
    /// Starts logging. The result writes what is left when it is dropped.
    pub(crate) fn start(&self) -> Result<Flush, Failure> {
        let logged: Targets = self
            .log
            .parse()
            .map_err(|error| Failure::input(format!("--log {}: {error}; write such as info or debug", self.log)))?;
        let (output, flush) = log_output::start(std::io::stderr())
            .map_err(|error| Failure::operation(format!("the log's thread cannot be started: {error}")))?;
        let lines = tracing_subscriber::fmt::layer()
            .log_internal_errors(false)
            .with_writer(move || output.clone());
        let lines = match self.log_format {
            LogFormat::Text => lines.with_ansi(false).boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        tracing_subscriber::registry().with(lines).with(logged).init();
        // The default hook writes to standard error itself, and would block without a reader.
        std::panic::set_hook(Box::new(
            |panic| tracing::error!(%panic, "a thread has panicked; this is a bug"),
        ));
        Ok(flush)
    }
}
