//! The service's and the issuer's names in envoy-config/envoy.yaml.

/// The service's name in envoy-config/envoy.yaml.
pub const AUDIENCE: &str = "https://payments.example";

/// The issuer that the filter trusts in envoy-config/envoy.yaml.
pub const ISSUER: &str = "https://id.example.com";

/// The header with an answer of the service behind Envoy, in Base64: the bytes of an HTTP/1.1 response, which need not end.
pub const ANSWER: &str = "x-answer";
