//! Decisions that are counted and not recorded one by one.

use credence_wire::v1;

/// The counts that are still growing: one for each kind of decision and second.
///
/// Every decision that is added is in one count, or the caller is told that it is not.
#[derive(Debug, Default)]
pub(super) struct Counts {
    by_rule: Vec<v1::Aggregate>,
    by_reason: Vec<v1::Aggregate>,
}

/// What decisions that are counted together have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    /// The rule's name; empty if none matched.
    pub rule: &'a str,
    /// Why.
    pub reason: &'static str,
    /// Which way they went.
    pub decision: v1::Decision,
    /// Whether they were carried out.
    pub mode: v1::Mode,
}

/// The most kinds of one second, or of several while there is no room for what is over, that are counted by rule.
pub const MAX_OPEN_BY_RULE: usize = 256;

/// The most that are counted without their rule once there are that many.
pub const MAX_OPEN_BY_REASON: usize = 256;

/// The rule in counts of requests that no rule covers. No rule can have this name: names are not empty.
pub const NO_RULE: &str = "";

/// The rule in counts where there was no room for the rule's own. No rule can have this name.
pub const OTHER_RULES: &str = "(other)";

// === impl Counts ===

impl Counts {
    /// Adds decisions of one kind and second. `false` if there are too many kinds: they are counted nowhere.
    pub(super) fn add(&mut self, kind: &Kind<'_>, second: i64, count: u64) -> bool {
        add(&mut self.by_rule, MAX_OPEN_BY_RULE, kind, second, count) || {
            let kind = Kind {
                rule: OTHER_RULES,
                ..*kind
            };
            add(&mut self.by_reason, MAX_OPEN_BY_REASON, &kind, second, count)
        }
    }

    /// Hands over the counts of the seconds that are over; those that `store` refuses stay.
    pub(super) fn close(&mut self, is_over: impl Fn(i64) -> bool, mut store: impl FnMut(&v1::Aggregate) -> bool) {
        for open in [&mut self.by_rule, &mut self.by_reason] {
            open.retain(|open| !(is_over(open.second) && store(open)));
        }
    }

    /// Whether none is open.
    pub(super) fn is_empty(&self) -> bool {
        self.by_rule.is_empty() && self.by_reason.is_empty()
    }
}

fn add(counts: &mut Vec<v1::Aggregate>, most: usize, kind: &Kind<'_>, second: i64, count: u64) -> bool {
    // The newest are last, and a flood is made of few kinds.
    if let Some(open) = counts.iter_mut().rev().find(|open| kind.is_of(open, second)) {
        open.count = open.count.saturating_add(count);
        return true;
    }
    let has_room = counts.len() < most;
    if has_room {
        counts.push(v1::Aggregate {
            second,
            rule: kind.rule.to_owned(),
            reason: kind.reason.to_owned(),
            count,
            decision: kind.decision.into(),
            mode: kind.mode.into(),
            principal: None,
        });
    }
    has_room
}

// === impl Kind ===

impl Kind<'_> {
    fn is_of(&self, open: &v1::Aggregate, second: i64) -> bool {
        open.second == second
            && open.decision() == self.decision
            && open.mode() == self.mode
            && open.reason == self.reason
            && open.rule == self.rule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(rule: &str) -> Kind<'_> {
        Kind {
            rule,
            reason: "public",
            decision: v1::Decision::Allow,
            mode: v1::Mode::Enforce,
        }
    }

    fn closed(counts: &mut Counts) -> Vec<v1::Aggregate> {
        let mut closed = Vec::new();
        counts.close(
            |_| true,
            |aggregate| {
                closed.push(aggregate.clone());
                true
            },
        );
        assert!(counts.is_empty());
        closed
    }

    #[test]
    fn what_differs_in_anything_is_counted_apart() {
        let mut counts = Counts::default();
        let usual = kind("health");
        let others = [
            Kind { rule: "ready", ..usual },
            Kind {
                reason: "unmatched",
                ..usual
            },
            Kind {
                decision: v1::Decision::Deny,
                ..usual
            },
            Kind {
                mode: v1::Mode::Shadow,
                ..usual
            },
        ];
        for kind in others.iter().chain([&usual, &usual]) {
            assert!(counts.add(kind, 5, 1));
        }
        assert!(counts.add(&usual, 6, 3));
        let found: Vec<_> = closed(&mut counts).iter().map(|aggregate| aggregate.count).collect();
        assert_eq!(found, [1, 1, 1, 1, 2, 3]);
    }

    #[test]
    fn of_many_rules_the_last_are_counted_together_and_none_is_lost() {
        let mut counts = Counts::default();
        let rules = MAX_OPEN_BY_RULE as u64 + 100;
        for number in 0..rules {
            assert!(counts.add(&kind(&format!("rule-{number}")), 5, 2));
        }
        let closed = closed(&mut counts);
        assert_eq!(closed.len(), MAX_OPEN_BY_RULE + 1);
        assert_eq!(closed.iter().map(|aggregate| aggregate.count).sum::<u64>(), rules * 2);
        let last = closed.last().unwrap();
        assert_eq!((last.rule.as_str(), last.count), (OTHER_RULES, 200));
        assert_eq!(last.decision(), v1::Decision::Allow);
    }

    #[test]
    fn the_number_of_kinds_is_bounded_and_what_is_beyond_is_said() {
        let mut counts = Counts::default();
        let most = (MAX_OPEN_BY_RULE + MAX_OPEN_BY_REASON) as i64;
        for second in 0..most {
            assert!(counts.add(&kind("health"), second, 1));
        }
        assert!(!counts.add(&kind("health"), most, 1));
        assert_eq!(closed(&mut counts).len() as i64, most);
    }

    #[test]
    fn what_can_not_be_stored_stays() {
        let mut counts = Counts::default();
        counts.add(&kind("health"), 5, 1);
        counts.add(&kind("health"), 6, 1);
        counts.close(|second| second < 6, |_| false);
        assert_eq!(closed(&mut counts).len(), 2);
    }
}
