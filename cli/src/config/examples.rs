//! The values in Credence's own files that a user replaces, and the note about each

pub(super) const LOG_ID: &str = "0123456789abcdef0123456789abcdef";

pub(super) const LOG_ID_NOTE: &str = "the log id of Credence's own files: requests that need a delegation are denied; set \
                                      your control plane's, from GET /v1/log";

pub(super) const DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

pub(super) const DIGEST_NOTE: &str = "the digest of Credence's own files: the module is not loaded, and every request is \
                                      denied, in shadow mode too; set the one that `make oci` prints";
