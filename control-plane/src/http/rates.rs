//! Rate limits: for each credential and, for requests without one, for each client address.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::settings::RateSettings;
use credence_runtime::client_limits::Network;
use credence_runtime::rates::{Rate, RateTable};

/// Every bucket.
#[derive(Debug)]
pub(crate) struct Rates {
    pub(super) credentials: RateTable<String>,
    pub(super) anonymous: RateTable<Network>,
    statements_of: RateTable<Network>,
    statements: RateTable<()>,
}

// === impl Rates ===

impl Rates {
    pub(crate) fn new(settings: &RateSettings, now: Instant) -> Self {
        let room = settings.counted_apart;
        let anonymous = Rate::new(
            settings.unauthenticated_requests_per_second,
            settings.unauthenticated_burst,
        );
        let (all, each) = (
            settings.statements_per_second,
            settings.statements_per_second_per_address,
        );
        Self {
            credentials: RateTable::new(Rate::new(settings.requests_per_second, settings.burst), room, now),
            anonymous: RateTable::new(anonymous, room, now),
            statements_of: RateTable::new(Rate::new(each, each), room, now),
            statements: RateTable::new(Rate::new(all, all), 1, now),
        }
    }

    /// The address's own bucket comes first, so that one client does not use up the common one.
    pub(super) fn statement(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        self.statements_of.take(&Network::of(address), now)?;
        self.statements.take(&(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_use_up_the_statements_of_all() {
        let start = Instant::now();
        let settings = RateSettings {
            statements_per_second: 3,
            statements_per_second_per_address: 2,
            ..RateSettings::default()
        };
        let rates = Rates::new(&settings, start);
        let of = |last: u8| rates.statement(IpAddr::from([192, 0, 2, last]), start);
        assert_eq!([of(1), of(1), of(2)], [Ok(()); 3]);
        assert!(of(1).is_err() && of(2).is_err() && of(3).is_err());
    }
}
