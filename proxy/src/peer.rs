//! Which user's program has the other end of a connection on this machine, as the kernel knows it (sock_diag(7)).

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;

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
        let is_ours = ours.state == ESTABLISHED && u64::from(ours.inode) == inode;
        Ok((is_ours && theirs.state == ESTABLISHED).then_some(theirs.uid))
    };
    asked()
        .inspect_err(|error| tracing::debug!(%error, "the kernel does not know a peer"))
        .ok()
        .flatten()
}

/// What the kernel says about a socket.
struct Found {
    state: u8,
    uid: u32,
    inode: u32,
}

/// The socket with this local and this remote address.
fn find(local: SocketAddr, remote: SocketAddr) -> io::Result<Found> {
    let kernel = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
    send(&kernel, &question(local, remote), SendFlags::empty())?;
    let mut answer = [0; 512];
    let (_, length) = recv(&kernel, &mut answer, RecvFlags::empty())?;
    let number = |at: usize| {
        let bytes = answer.get(at..at + 4).filter(|_| at + 4 <= length);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or(io::ErrorKind::UnexpectedEof)
    };
    // Of the header: the type of the message, without its flags.
    if number(4)? & 0xffff != u32::from(SOCK_DIAG_BY_FAMILY) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let state = answer[HEADER_BYTES + 1];
    Ok(Found {
        state,
        uid: number(HEADER_BYTES + 64)?,
        inode: number(HEADER_BYTES + 68)?,
    })
}

/// `nlmsghdr`, and `inet_diag_req_v2` for exactly one socket.
fn question(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let address = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => [ip.octets().as_slice(), &[0; 12]].concat(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let family = if local.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let mut question = Vec::with_capacity(QUESTION_BYTES as usize);
    question.extend(QUESTION_BYTES.to_ne_bytes());
    question.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    question.extend(REQUEST.to_ne_bytes());
    question.extend([0; 8]);
    question.extend([family.as_raw() as u8, TCP, 0, 0]);
    question.extend(ANY_STATE.to_ne_bytes());
    question.extend(local.port().to_be_bytes());
    question.extend(remote.port().to_be_bytes());
    question.extend(address(local.ip()));
    question.extend(address(remote.ip()));
    // Any interface, no cookie.
    question.extend([0; 4]);
    question.extend([0xff; 8]);
    question
}

const HEADER_BYTES: usize = 16;
const QUESTION_BYTES: u32 = 72;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const TCP: u8 = 6;
const ANY_STATE: u32 = u32::MAX;
const ESTABLISHED: u8 = 1;

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
