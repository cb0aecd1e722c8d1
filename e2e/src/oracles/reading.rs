//! A service's answer: the request as its framework hands it to an application.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Reply;

/// What a service says that it received, as its framework hands it to an application.
#[derive(Debug, Clone, Deserialize)]
pub struct Reading {
    /// The framework and its server, with their versions.
    pub version: String,
    /// Which of the application's handlers ran.
    pub handler: String,
    /// What the route captured from the path, decoded.
    pub captures: BTreeMap<String, String>,
    /// The method.
    pub method: String,
    /// The host without a port; that of X-Forwarded-Host where the application believes it.
    pub host: Option<String>,
    /// The members of the query that the application knows.
    pub query: BTreeMap<String, String>,
    /// Every header under the name by which an application asks for it, in lower case.
    pub headers: BTreeMap<String, String>,
    /// Likewise, where the framework has them.
    pub trailers: BTreeMap<String, String>,
}

impl Reading {
    /// The service's answer; `None` if something else answered.
    pub fn of(reply: &Reply) -> Option<Self> {
        serde_json::from_slice(&reply.body).ok()
    }

    /// The virtual host by which Envoy routed the request.
    pub fn virtual_host(&self) -> Option<&str> {
        self.headers.get(VIRTUAL_HOST).map(String::as_str)
    }
}

/// The header in which Envoy tells the service the virtual host that it routed by.
pub(crate) const VIRTUAL_HOST: &str = "x-virtual-host";
