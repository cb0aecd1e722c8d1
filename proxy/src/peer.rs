//! Which user's program has the other end of a connection on this machine, as the kernel knows it (sock_diag(7)).

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, TCP_ESTABLISHED};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

/// The user at the other end of `stream`, which connects these addresses. `None` if that is not certain.
///
/// A port is free again once its connection ends, so the found socket could be another program's. It is not if our own
/// socket is still established after the search: then it has held both addresses all the time.
pub(crate) fn peer_uid(stream: impl AsFd, peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let asked = || -> io::Result<Option<u32>> {
        let inode = File::from(stream.as_fd().try_clone_to_owned()?).metadata()?.ino();
        let theirs = find(peer, own)?;
        let ours = find(own, peer)?;
        let is_ours = ours.state == TCP_ESTABLISHED && u64::from(ours.inode) == inode;
        Ok((is_ours && theirs.state == TCP_ESTABLISHED).then_some(theirs.uid))
    };
    asked()
        .inspect_err(|error| tracing::debug!(%error, "the kernel does not know a peer"))
        .ok()
        .flatten()
}

/// What the kernel says about the socket with this local and this remote address.
fn find(local: SocketAddr, remote: SocketAddr) -> io::Result<InetResponseHeader> {
    let request = InetRequest {
        family: if local.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: local.port(),
            destination_port: remote.port(),
            source_address: local.ip(),
            destination_address: remote.ip(),
            interface_id: 0,
            cookie: ANY_COOKIE,
        },
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut question = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    question.finalize();
    let mut bytes = vec![0; question.buffer_len()];
    question.serialize(&mut bytes);
    let kernel = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
    send(&kernel, &bytes, SendFlags::empty())?;
    let mut answer = [0; 512];
    let (_, length) = recv(&kernel, &mut answer, RecvFlags::empty())?;
    let answer = NetlinkMessage::deserialize(answer.get(..length).unwrap_or_default());
    match answer.map_err(io::Error::other)?.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => Ok(found.header),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

const ANY_COOKIE: [u8; 8] = [0xff; 8];

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_an_open_connection_is_known_and_that_of_a_closed_one_is_not() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, peer) = listener.accept().unwrap();
            let own = accepted.local_addr().unwrap();
            let uid = rustix::process::getuid().as_raw();
            assert_eq!(peer_uid(&accepted, peer, own), Some(uid));
            // Another connection's socket is not the one that holds these addresses.
            let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(peer_uid(&other, peer, own), None);
            drop(client);
            assert_eq!(peer_uid(&accepted, peer, own), None);
        }
    }
}
