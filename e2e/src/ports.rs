//! Ports for servers that must restart on the same one.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::Failure;

/// A free port of this machine, which no other test gets while this process runs.
///
/// Below the kernel's range of ports for outgoing connections, so that no other program gets it while its server
/// restarts.
///
/// # Errors
/// If none is found.
pub fn free() -> Result<u16, Failure> {
    for _ in 0..ATTEMPTS {
        let random = RandomState::new().build_hasher().finish();
        let port = FIRST + u16::try_from(random % COUNT).unwrap_or_default();
        if reserve(port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::new(format!(
        "no free port found from {FIRST} on, in {ATTEMPTS} attempts"
    )))
}

/// Reserves a port for this process, by a Unix socket of its name: the kernel removes it when the process ends.
fn reserve(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("credence-e2e-port-{port}"));
    name.and_then(|name| UnixListener::bind_addr(&name))
        .map(std::mem::forget)
        .is_ok()
}

const FIRST: u16 = 20_000;
const COUNT: u64 = 12_000;
const ATTEMPTS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once() {
        let port = free().unwrap();
        assert!(!reserve(port));
    }
}
