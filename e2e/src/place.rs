//! Where a program of a test runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use crate::{Failure, ports};

/// This machine's loopback, or a node of a [`Network`](crate::network::Network).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    address: Ipv4Addr,
    /// The process whose network namespace it is.
    keeper: Option<u32>,
}

impl Place {
    /// A network namespace with this address.
    pub(crate) fn of(address: Ipv4Addr, keeper: u32) -> Self {
        Self {
            address,
            keeper: Some(keeper),
        }
    }

    /// Its address.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// An address for a server that may restart there.
    ///
    /// # Errors
    /// If no port is free.
    pub fn free_address(&self) -> Result<SocketAddr, Failure> {
        Ok((self.address, ports::free()?).into())
    }

    /// The command that runs this program there.
    pub fn command(&self, program: &Path) -> Command {
        let Some(keeper) = self.keeper else {
            return Command::new(program);
        };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{keeper}/ns/net")).arg(program);
        command
    }
}

impl Default for Place {
    /// This machine's loopback.
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST,
            keeper: None,
        }
    }
}
