//! Randomness from the operating system.

use credence_delegation::UnixTime;
use zeroize::Zeroizing;

use crate::failure::Failure;

/// `N` random bytes, erased from memory when dropped.
pub(crate) fn bytes<const N: usize>() -> Result<Zeroizing<[u8; N]>, Failure> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut_slice())
        .map_err(|error| Failure::operation(format!("the operating system gives no random bytes: {error}")))?;
    Ok(bytes)
}

/// A new id for a token or a proof: a UUIDv7, as the draft recommends for `jti`.
pub(crate) fn id(now: UnixTime) -> Result<String, Failure> {
    let milliseconds = u64::try_from(now.0).unwrap_or_default().saturating_mul(1_000);
    Ok(
        uuid::Builder::from_unix_timestamp_millis(milliseconds, &*bytes::<10>()?)
            .into_uuid()
            .to_string(),
    )
}
