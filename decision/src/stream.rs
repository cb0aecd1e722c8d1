//! A gRPC stream to the control plane, as its user sees it: `revocation::Watch` and `audit::Reporter` use one each.

use crate::clock::Monotonic;

/// What to do with a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAction {
    /// Open the stream, then call `on_open`, or `on_close` if that failed at once.
    Open,
    /// Send this encoded message.
    Send(Vec<u8>),
    /// Reset the stream and forget its token: no close will be expected from it.
    Cancel,
    /// Tell the operator.
    Report(String),
}

/// Decides what is said on a stream. It does nothing by itself: a host tells it what has happened, and carries out the
/// actions that it returns, in order.
///
/// The host tells it of the *present* stream only; what still arrives from a cancelled one is dropped.
pub trait StreamHandler {
    /// The stream is open.
    fn on_open(&mut self, now: Monotonic) -> Vec<StreamAction>;

    /// A message has arrived.
    fn on_message(&mut self, now: Monotonic, message: &[u8], random: u64) -> Vec<StreamAction>;

    /// The stream could not be opened, or has ended.
    fn on_close(&mut self, now: Monotonic, status: u32, random: u64) -> Vec<StreamAction>;
}

/// How the control plane broke the contract of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// In words that say what to do.
    pub(crate) what: String,
    /// Whether trying again soon is pointless, because an operator has to act first.
    pub(crate) is_lasting: bool,
}

impl Violation {
    /// One that may pass.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_lasting: false,
        }
    }

    /// One that an operator has to cure.
    pub(crate) fn lasting(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_lasting: true,
        }
    }
}

/// What a message of at most `limit` bytes says. `name` is that of its type.
pub(crate) fn decode<T: prost::Message + Default, M>(
    bytes: &[u8],
    limit: usize,
    name: &str,
    message: impl FnOnce(T) -> Option<M>,
) -> Result<M, Violation> {
    if bytes.len() > limit {
        return Err(Violation::new(format!(
            "a message has {} bytes; expected at most {limit}",
            bytes.len()
        )));
    }
    T::decode(bytes).ok().and_then(message).ok_or_else(|| {
        Violation::new(format!(
            "a message is no {name} this filter knows: update the filter before the control plane"
        ))
    })
}
