//! Where a log of several replicas is, and how it is reached.

use std::path::{Path, PathBuf};

use credence_control_plane::{StoreAddress, StoreOptions, StoreSecurity};

/// etcd, and its credentials.
#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// etcd that has the log, for several control planes: `etcd://HOST:PORT,HOST:PORT,HOST:PORT/PREFIX`.
    ///
    /// Each replica has a data folder of its own, for its ledger. `--max-staleness` and `--max-token-lifetime` are the same for all;
    /// `--drain-promise` does not apply. `--init` creates the log, once.
    #[arg(long, value_name = "ADDRESS", env = "CREDENCE_STORE")]
    pub(crate) store: Option<StoreAddress>,

    /// With `--store`: certificate authorities of etcd, PEM. TLS is used.
    #[arg(long, value_name = "FILE", requires = "store")]
    store_ca: Option<PathBuf>,

    /// With `--store-ca`: our certificate, PEM.
    #[arg(long, value_name = "FILE", requires_all = ["store_ca", "store_key"])]
    store_cert: Option<PathBuf>,

    /// With `--store-cert`: its key, PEM.
    #[arg(long, value_name = "FILE", requires = "store_cert")]
    store_key: Option<PathBuf>,

    /// With `--store-ca`: user of etcd.
    #[arg(long, value_name = "NAME", requires_all = ["store_ca", "store_password_file"])]
    store_user: Option<String>,

    /// With `--store-user`: file of the password.
    #[arg(long, value_name = "FILE", requires = "store_user")]
    store_password_file: Option<PathBuf>,
}

impl StoreArgs {
    /// The store, if one is given, with the secrets of all replicas in this folder.
    pub(crate) fn options(&self, secrets: &Path) -> Option<StoreOptions> {
        Some(StoreOptions {
            address: self.store.clone()?,
            security: StoreSecurity {
                ca: self.store_ca.clone(),
                certificate: self.store_cert.clone().zip(self.store_key.clone()),
                user: self.store_user.clone().zip(self.store_password_file.clone()),
            },
            secrets: secrets.to_owned(),
        })
    }
}
