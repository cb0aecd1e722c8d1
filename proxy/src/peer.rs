//! Which user's program has the other end of a connection.

use std::net::{IpAddr, SocketAddr};

/// The user whose program has the other end of a connection on this machine, as the kernel lists it.
pub(crate) fn peer_uid(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let table = match peer {
        SocketAddr::V4(_) => "/proc/net/tcp",
        SocketAddr::V6(_) => "/proc/net/tcp6",
    };
    find(&std::fs::read_to_string(table).ok()?, peer, own)
}

fn find(table: &str, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let (peer, own) = (in_table(peer), in_table(own));
    table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let ends = (fields.next()?, fields.next()?);
        let uid = fields.nth(4)?;
        (ends == (peer.as_str(), own.as_str())).then(|| uid.parse().ok())?
    })
}

/// An address as the kernel writes it: each 32 bits of it in this machine's byte order.
fn in_table(address: SocketAddr) -> String {
    let bytes = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (words, _) = bytes.as_chunks::<4>();
    let words = words.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
    format!("{}:{:04X}", words.collect::<String>(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn the_end_of_a_connection_is_found_by_both_its_addresses() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:1BA8 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n   \
                     1: 0100007F:D431 0100007F:1BA8 01 00000000:00000000 00:00000000 00000000  1000        0 2 1\n";
        let (client, proxy) = ("127.0.0.1:54321".parse().unwrap(), "127.0.0.1:7080".parse().unwrap());
        assert_eq!(find(table, client, proxy), Some(1000));
        assert_eq!(find(table, proxy, client), Some(0));
        assert_eq!(find(table, client, client), None);
        assert_eq!(
            in_table("[::1]:7080".parse().unwrap()),
            "00000000000000000000000001000000:1BA8"
        );
    }
}
