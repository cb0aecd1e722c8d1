//! Ends and beginnings: of the proxy, of the service, and of the delegation.
