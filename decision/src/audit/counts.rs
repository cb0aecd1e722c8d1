//! Decisions that are counted instead of recorded one by one.

use credence_wire::v1;

/// The open counts: one for each kind of decision and second.
///
/// Every added decision is in one count, or the caller learns that it is not.
#[derive(Debug, Default)]
pub(super) struct Counts {
    by_rule: Vec<v1::Aggregate>,
    by_reason: Vec<v1::Aggregate>,
}

/// The common properties of decisions that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind<'a> {
    /// The rule's name; empty if none matched.
    pub rule: &'a str,
    /// The reason code.
    pub reason: &'static str,
    /// Allow or deny.
    pub decision: v1::Decision,
    /// Enforced or in shadow.
    pub mode: v1::Mode,
}

/// The most kinds that are counted by rule. They are of one second, or of several while closed ones cannot be stored.
pub const MAX_OPEN_BY_RULE: usize = 256;

/// The most further kinds that are counted without their rule.
pub const MAX_OPEN_BY_REASON: usize = 256;

/// The rule of requests that match no rule. No rule can have this name, because names are not empty.
pub const NO_RULE: &str = "";

/// The rule of counts beyond [`MAX_OPEN_BY_RULE`]. No rule can have this name.
pub const OTHER_RULES: &str = "(other)";

// === impl Counts ===

impl Counts {
    /// Adds decisions of one kind and second. `false` if there are too many kinds; then they are not counted.
    pub(super) fn add(&mut self, kind: &Kind<'_>, second: i64, count: u64) -> bool {
        add(&mut self.by_rule, MAX_OPEN_BY_RULE, kind, second, count) || {
            let kind = Kind {
                rule: OTHER_RULES,
                ..*kind
            };
            add(&mut self.by_reason, MAX_OPEN_BY_REASON, &kind, second, count)
        }
    }

    /// Passes the counts of past seconds to `store`. Counts that `store` refuses stay.
    pub(super) fn close(&mut self, is_over: impl Fn(i64) -> bool, mut store: impl FnMut(&v1::Aggregate) -> bool) {
        for open in [&mut self.by_rule, &mut self.by_reason] {
            open.retain(|open| !(is_over(open.second) && store(open)));
        }
    }

    /// Whether no count is open.
    pub(super) fn is_empty(&self) -> bool {
        self.by_rule.is_empty() && self.by_reason.is_empty()
    }
}

fn add(counts: &mut Vec<v1::Aggregate>, most: usize, kind: &Kind<'_>, second: i64, count: u64) -> bool {
    // Search from the newest: a flood consists of few kinds.
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
    fn kinds_that_differ_are_counted_separately() {
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
    fn beyond_the_limit_rules_are_counted_together_and_none_is_lost() {
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
    fn the_number_of_kinds_is_bounded_and_the_excess_is_reported() {
        let mut counts = Counts::default();
        let most = (MAX_OPEN_BY_RULE + MAX_OPEN_BY_REASON) as i64;
        for second in 0..most {
            assert!(counts.add(&kind("health"), second, 1));
        }
        assert!(!counts.add(&kind("health"), most, 1));
        assert_eq!(closed(&mut counts).len() as i64, most);
    }

    #[test]
    fn counts_that_cannot_be_stored_stay() {
        let mut counts = Counts::default();
        counts.add(&kind("health"), 5, 1);
        counts.add(&kind("health"), 6, 1);
        counts.close(|second| second < 6, |_| false);
        assert_eq!(closed(&mut counts).len(), 2);
    }
}
