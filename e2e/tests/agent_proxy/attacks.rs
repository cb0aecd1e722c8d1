//! Attacks on the proxy, and by what it talks to.
