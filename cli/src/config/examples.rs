//! Values in Credence's own files that a user replaces

/// The log id in Credence's own files, which a user replaces.
pub(super) const EXAMPLE_LOG_ID: &str = "0123456789abcdef0123456789abcdef";

pub(super) const IS_EXAMPLE_LOG_ID: &str = "the log id of Credence's own files: requests that need a delegation are denied; set your \
                                 control plane's, from GET /v1/log";

/// The digest in Credence's own files, which a user replaces.
pub(super) const EXAMPLE_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

pub(super) const IS_EXAMPLE_DIGEST: &str = "the digest of Credence's own files: the module is not loaded, and every request is \
                                 denied, in shadow mode too; set the one that `make oci` prints";
