//! File descriptors: every connection needs one, and so does every write.

use credence_server::Unusable;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of connections of the HTTP listener and of the gRPC listener.
pub(crate) type Share = (usize, usize);

/// Raises the limit on open files as far as the system allows, and divides it: `wanted` for each listener if that fits,
/// otherwise a quarter for HTTP and the rest for the filters. Each has its own places, so that neither can use up the
/// other's.
pub(crate) fn share(wanted: usize) -> Result<Share, Unusable> {
    let available = raise()?;
    let (http, grpc) = divide(available, wanted).ok_or_else(|| too_few(available))?;
    if http < wanted || grpc < wanted {
        tracing::warn!(
            http,
            grpc,
            "the limit of {available} open files leaves room for fewer connections than configured ({wanted} each); \
             raise it (ulimit -n, LimitNOFILE=) to at least {}",
            2 * wanted as u64 + RESERVE
        );
    }
    Ok((http, grpc))
}

/// Raises the soft limit to the hard one, and returns it.
fn raise() -> Result<u64, Unusable> {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    let soft = limit.current.unwrap_or(u64::MAX);
    if soft >= hard {
        return Ok(soft);
    }
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| Unusable(format!("the limit on open files cannot be raised to {hard}: {error}")))?;
    Ok(hard)
}

fn too_few(found: u64) -> Unusable {
    Unusable(format!(
        "this process may have {found} files and connections open at a time, and needs at least {MINIMUM}. Raise the \
         limit: ulimit -n 65536 in a shell, LimitNOFILE=65536 in a systemd unit, --ulimit nofile=65536 for a container"
    ))
}

fn divide(available: u64, wanted: usize) -> Option<Share> {
    let available = usize::try_from(available).unwrap_or(usize::MAX);
    let room = available.checked_sub(RESERVE as usize)?;
    if available < MINIMUM as usize {
        return None;
    }
    let http = wanted.min(room / 4);
    let grpc = wanted.min(room - http);
    Some((wanted.min(room - grpc), grpc))
}

/// Reserved from connections: for the log, the ledger, queries, the runtime and libraries.
const RESERVE: u64 = 64;
/// The minimum for an operator and a few filters.
const MINIMUM: u64 = RESERVE + 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_reserve_always_fit_the_limit() {
        for available in [128, 256, 1024, 20_000, 65_536, u64::MAX] {
            let (http, grpc) = divide(available, 16_384).unwrap();
            assert!((http + grpc) as u64 <= available - RESERVE, "{available}");
            assert!(http >= 16 && grpc >= 48, "{available}");
        }
    }

    #[test]
    fn as_many_as_wanted_are_given_if_they_fit() {
        assert_eq!(divide(32_768 + RESERVE, 16_384), Some((16_384, 16_384)));
    }

    #[test]
    fn too_low_a_limit_is_refused() {
        assert_eq!(divide(127, 16_384), None);
        assert!(too_few(127).to_string().contains("ulimit -n"));
    }

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let raised = raise().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), raised);
    }
}
