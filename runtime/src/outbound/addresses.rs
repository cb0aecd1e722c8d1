//! Which servers may be asked: those at public addresses or in listed networks. So a URL that another party chose, or its
//! DNS, cannot make a server send requests into the operator's own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Addresses with a common beginning, as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// Resolves names to public addresses, and to those of the listed networks.
#[derive(Debug)]
pub(super) struct AllowedAddresses {
    pub(super) networks: Vec<Network>,
    pub(super) inner: DefaultResolver,
}

// === impl Network ===

impl Network {
    /// Reads an address and the length of its prefix. None if it is not a network.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = text.split_once('/')?;
        let (address, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
        (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self { address, bits })
    }

    pub fn has(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

// === impl AllowedAddresses ===

impl AllowedAddresses {
    fn allow(&self, address: IpAddr) -> bool {
        is_public(address) || self.networks.iter().any(|network| network.has(address))
    }
}

impl Resolver for AllowedAddresses {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let resolved = self.inner.resolve(uri, config, timeout)?;
        let forbidden = resolved
            .iter()
            .map(SocketAddr::ip)
            .find(|address| !self.allow(*address));
        match forbidden {
            None => Ok(resolved),
            Some(address) => Err(ureq::Error::Other(
                format!(
                    "its host has the address {address}, which is not public; list its network in private_addresses"
                )
                .into(),
            )),
        }
    }
}

/// Whether an address is that of a server on the internet (the IANA registries of special-purpose addresses).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let octets = address.octets();
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || matches!(
            octets,
            // This network, shared addresses (RFC 6598), protocol assignments, benchmarks (RFC 2544), reserved.
            [0, ..] | [100, 64..=127, ..] | [192, 0, 0, _] | [192, 88, 99, _] | [198, 18..=19, ..] | [240..=255, ..]
        );
    !is_special
}

/// Global unicast addresses, without those in which an IPv4 address decides (RFC 4291, 6052, 3056, 4380).
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_global = first & 0xe000 == 0x2000;
    let is_special = matches!(
        (first, second),
        (0x2001, 0x0000..=0x01ff | 0x0db8) | (0x2002, _) | (0x3fff, 0x0000..=0x0fff)
    );
    is_global && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for public in [
            "8.8.8.8",
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            assert!(is_public(address(public)), "{public}");
        }
        for other in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::a00:1",
            "2001::1",
            "2001:db8::1",
            "2002:a00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_public(address(other)), "{other}");
        }
    }

    #[test]
    fn a_listed_network_has_its_addresses_and_no_others() {
        let network = |text: &str| Network::parse(text).unwrap();
        assert!(network("10.0.0.0/8").has(address("10.255.0.1")));
        assert!(!network("10.0.0.0/8").has(address("11.0.0.1")));
        assert!(network("127.0.0.1/32").has(address("127.0.0.1")));
        assert!(!network("127.0.0.1/32").has(address("127.0.0.2")));
        assert!(network("0.0.0.0/0").has(address("192.168.0.1")));
        assert!(network("fd00::/8").has(address("fd12::1")));
        assert!(!network("0.0.0.0/0").has(address("::1")));
        for wrong in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "host/8",
            "10.0.0.0/-1",
        ] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }
}
