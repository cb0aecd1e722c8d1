//! Ports for servers that must restart on the same one.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{Ipv4Addr, TcpListener};

use crate::Failure;

/// A free port of this machine.
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
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::new(format!(
        "no free port found from {FIRST} on, in {ATTEMPTS} attempts"
    )))
}

const FIRST: u16 = 20_000;
const COUNT: u64 = 12_000;
const ATTEMPTS: u32 = 100;
