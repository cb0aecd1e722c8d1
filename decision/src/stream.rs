//! A gRPC stream to the control plane, for its users `revocation::Watch` and `audit::Reporter`.

use crate::clock::Monotonic;

/// An action on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamAction {
    /// Open the stream, then call `on_open`, or `on_close` if that failed at once.
    Open,
    /// Send this encoded message.
    Send(Vec<u8>),
    /// Reset the stream and forget its token: no close will follow.
    Cancel,
    /// Log this message for the operator.
    Report(String),
}

/// Decides the actions on a stream. It is passive: a host reports events to it, and carries out the returned actions in
/// order.
///
/// The host reports only events of the *present* stream, and drops late ones of a cancelled stream.
pub trait StreamHandler {
    /// The stream is open.
    fn on_open(&mut self, now: Monotonic) -> Vec<StreamAction>;

    /// A message has arrived.
    fn on_message(&mut self, now: Monotonic, message: &[u8], random: u64) -> Vec<StreamAction>;

    /// The stream could not be opened, or has ended.
    fn on_close(&mut self, now: Monotonic, status: u32, random: u64) -> Vec<StreamAction>;
}

/// A protocol violation by the control plane on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The violation; the text says what to do.
    pub(crate) what: String,
    /// Whether an early retry is pointless, because an operator has to act first.
    pub(crate) is_lasting: bool,
}

impl Violation {
    /// A violation that may be transient.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_lasting: false,
        }
    }

    /// A violation that an operator has to fix.
    pub(crate) fn lasting(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            is_lasting: true,
        }
    }
}

/// Decodes a message of at most `limit` bytes. `name` is that of its type.
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
            "a message is not a {name} that this filter knows: update the filter before the control plane"
        ))
    })
}
