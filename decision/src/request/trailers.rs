//! The trailers to remove from a request.
//!
//! The filter decides before trailers arrive, and some services merge them into the headers. So a service must not be
//! able to take a trailer for a header that the decision has read, or that the filter sets.

use super::headers::{HeaderIndex, HeaderMapError, HeaderNames, Override, folds_to, header_names, is_ours};

/// The trailers that are removed from every request.
#[derive(Clone, Debug, Default)]
pub struct RemovedTrailers {
    /// `None` if no decision is enforced: then only forged identity is removed, as from headers.
    decided_on: Option<DecidedOn>,
}

#[derive(Clone, Debug)]
struct DecidedOn {
    names: HeaderNames,
    /// The headers that rules read.
    read: HeaderIndex,
}

impl RemovedTrailers {
    /// For a configuration whose rules read the headers `read`.
    pub fn new(names: HeaderNames, read: HeaderIndex) -> Self {
        Self {
            decided_on: Some(DecidedOn { names, read }),
        }
    }

    /// The names to remove, as sent, from a serialised map. A name occurs as often as it was sent.
    ///
    /// # Errors
    /// [`HeaderMapError`] if the buffer is invalid.
    pub fn find<'a>(&self, serialized: &'a [u8]) -> Result<Vec<&'a [u8]>, HeaderMapError> {
        let decided_on = |name: &&[u8]| self.decided_on.as_ref().is_some_and(|decided_on| decided_on.has(name));
        Ok(header_names(serialized)?
            .filter(|name| is_ours(name) || decided_on(name))
            .collect())
    }
}

impl DecidedOn {
    fn has(&self, name: &[u8]) -> bool {
        let mut carriers = [&self.names.delegation, &self.names.proof].into_iter();
        let mut plain = OF_THE_MESSAGE.iter();
        carriers.any(|carrier| folds_to(name, carrier.as_bytes()))
            || plain.any(|plain| folds_to(name, plain))
            || Override::of(name).is_some()
            || name
                .get(..MCP_PARAMETERS.len())
                .is_some_and(|begin| folds_to(begin, MCP_PARAMETERS))
            || self.read.contains_fold_of(name)
    }
}

/// Arguments of a tool call, of any name.
const MCP_PARAMETERS: &[u8] = b"mcp-param-";

/// Further headers about the message itself. RFC 9110, section 6.5.1, forbids all of them in trailers.
const OF_THE_MESSAGE: [&[u8]; 4] = [b"host", b"connection", b"upgrade", b"expect"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::serialize;

    #[test]
    fn headers_that_a_decision_reads_are_removed_in_every_spelling() {
        let removed = [
            "x-delegation-subject",
            "x.delegation.subject",
            "delegation",
            "delegation.proof",
            "x-tenant",
            "Mcp_Param-City",
            "x.tenant",
            "x_stage",
            "x-http-method-override",
            "x.original.url",
            "x-forwarded-host",
            "host",
            "content-type",
            "content.length",
            "transfer-encoding",
        ];
        let left = ["x-checksum", "x.trace", "grpc-status", "x-tenants", "x-delegation"];
        let trailers: Vec<_> = removed.iter().chain(&left).map(|&name| (name, "v")).collect();
        let buffer = serialize(&trailers);
        let mut read = HeaderIndex::default();
        read.add("x-tenant");
        read.add("x-stage");
        let found = RemovedTrailers::new(HeaderNames::default(), read);
        assert_eq!(found.find(&buffer).unwrap(), removed.map(str::as_bytes));
    }

    #[test]
    fn in_shadow_mode_only_forged_identity_is_removed() {
        let buffer = serialize(&[("x.delegation.subject", "v"), ("x-tenant", "v"), ("host", "v")]);
        let found = RemovedTrailers::default().find(&buffer).unwrap();
        assert_eq!(found, [b"x.delegation.subject"]);
    }

    #[test]
    fn trailers_that_are_malformed_are_an_error() {
        assert_eq!(RemovedTrailers::default().find(b"x"), Err(HeaderMapError::Malformed));
    }
}
