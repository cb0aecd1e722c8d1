//! A service's answer: the request as the framework presents it to an application.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::Reply;

/// The request that a service received, as its framework presents it to an application.
#[derive(Debug, Clone, Deserialize)]
pub struct Reading {
    /// The framework and its server, with their versions.
    pub version: String,
    /// The application's handler that ran.
    pub handler: String,
    /// The path parameters of the route, decoded.
    pub captures: BTreeMap<String, String>,
    /// The method.
    pub method: String,
    /// The host without a port; the one of X-Forwarded-Host if the application trusts it.
    pub host: Option<String>,
    /// The members of the query that the application knows.
    pub query: BTreeMap<String, String>,
    /// All headers, by the name that an application uses, in lower case.
    pub headers: BTreeMap<String, String>,
    /// The trailers likewise, if the framework has them.
    pub trailers: BTreeMap<String, String>,
}

impl Reading {
    /// The service's answer; `None` if another program answered.
    pub fn of(reply: &Reply) -> Option<Self> {
        serde_json::from_slice(&reply.body).ok()
    }

    /// The virtual host by which Envoy routed the request.
    pub fn virtual_host(&self) -> Option<&str> {
        self.headers.get(VIRTUAL_HOST).map(String::as_str)
    }
}

/// The header in which Envoy tells the service the virtual host that it chose.
pub(crate) const VIRTUAL_HOST: &str = "x-virtual-host";
