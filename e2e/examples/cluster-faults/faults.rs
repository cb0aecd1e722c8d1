//! Faults, and how each is undone.

use std::fmt;
use std::net::Ipv4Addr;

use credence_e2e::Failure;
use credence_e2e::cluster::{CRAMPED, Cluster, MISLED, REPLICAS};
use credence_e2e::etcd::MEMBERS;
use credence_e2e::network::{Cut, Network};
use credence_e2e::random::Random;

/// What befalls one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fault {
    what: What,
    whom: Whom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// SIGKILL.
    Killed,
    /// SIGTERM.
    Stopped,
    /// SIGSTOP.
    Paused,
    /// All its packets vanish.
    CutOff,
    /// Packets between it and the members of etcd vanish.
    CutFromMembers,
    /// Packets between a replica and the filters vanish, and the operators' too.
    CutFromFilters,
    DiskFull,
    /// Its wall clock is wrong by this many seconds.
    ClockWrong(i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    Member(usize),
    /// The member that leads when it happens.
    Leader,
    Replica(usize),
}

impl Fault {
    /// One fault, or two at the same time.
    pub(crate) fn draw(random: &mut Random) -> Vec<Self> {
        let first = Self::one(random);
        if !random.once_in(PAIRS_ONCE_IN) {
            return vec![first];
        }
        let second = loop {
            let second = Self::one(random);
            if second.whom != first.whom
                && !(first.is_of_a_member()
                    && second.is_of_a_member()
                    && (first.whom == Whom::Leader || second.whom == Whom::Leader))
            {
                break second;
            }
        };
        vec![first, second]
    }

    fn one(random: &mut Random) -> Self {
        let replica = Whom::Replica(random.below(REPLICAS));
        let member = Whom::Member(random.below(MEMBERS));
        let process = [
            What::Killed,
            What::Stopped,
            What::Paused,
            What::CutOff,
            What::CutFromMembers,
        ];
        let what = process[random.below(process.len())];
        match random.below(8) {
            0..=1 => Self { what, whom: member },
            2 => Self {
                what,
                whom: Whom::Leader,
            },
            3..=4 => Self { what, whom: replica },
            5 => Self {
                what: What::CutFromFilters,
                whom: replica,
            },
            6 if random.once_in(2) => Self {
                what: What::DiskFull,
                whom: Whom::Member(MEMBERS - 1),
            },
            6 => Self {
                what: What::DiskFull,
                whom: Whom::Replica(CRAMPED),
            },
            _ => {
                let hour = if random.once_in(2) { 3_600 } else { -3_600 };
                Self {
                    what: What::ClockWrong(hour),
                    whom: Whom::Replica(MISLED),
                }
            }
        }
    }

    fn is_of_a_member(self) -> bool {
        !matches!(self.whom, Whom::Replica(_))
    }

    /// Whether calls to this replica may fail.
    pub(crate) fn concerns(self, replica: usize) -> bool {
        self.whom == Whom::Replica(replica)
    }

    /// Makes it happen. What is returned undoes it.
    pub(crate) fn begin(self, cluster: &mut Cluster) -> Result<Begun, Failure> {
        let whom = match self.whom {
            Whom::Leader => Whom::Member(cluster.etcd.leader()?),
            whom => whom,
        };
        let begun = Begun { what: self.what, whom };
        match (self.what, whom) {
            (What::Killed, Whom::Member(nth)) => cluster.etcd.member(nth).kill()?,
            (What::Killed, Whom::Replica(nth)) => cluster.replica(nth).kill()?,
            (What::Stopped, Whom::Member(nth)) => drop(cluster.etcd.member(nth).stop()?),
            (What::Stopped, Whom::Replica(nth)) => drop(cluster.replica(nth).stop()?),
            (What::Paused, Whom::Member(nth)) => cluster.etcd.member(nth).suspend()?,
            (What::Paused, Whom::Replica(nth)) => cluster.replica(nth).suspend()?,
            (What::DiskFull, Whom::Member(_)) => cluster.etcd.small_disk().map_or(Ok(()), |disk| disk.fill())?,
            (What::DiskFull, Whom::Replica(_)) => cluster.small_disk().map_or(Ok(()), |disk| disk.fill())?,
            (What::ClockWrong(seconds), _) => cluster.clock.as_ref().map_or(Ok(()), |clock| clock.jump(seconds))?,
            _ => begun.cuts(cluster, Network::cut)?,
        }
        Ok(begun)
    }
}

/// A fault that lasts.
#[derive(Debug)]
pub(crate) struct Begun {
    what: What,
    whom: Whom,
}

impl Begun {
    /// Undoes it, and waits for nothing but a start of its program.
    pub(crate) fn end(&self, cluster: &mut Cluster) -> Result<(), Failure> {
        match (self.what, self.whom) {
            (What::Killed | What::Stopped, Whom::Member(nth)) => cluster.etcd.restart_and_not_wait(nth),
            (What::Killed | What::Stopped, Whom::Replica(nth)) => cluster.replica(nth).restart_and_not_wait(),
            (What::Paused, Whom::Member(nth)) => cluster.etcd.member(nth).resume(),
            (What::Paused, Whom::Replica(nth)) => cluster.replica(nth).resume(),
            (What::DiskFull, Whom::Member(nth)) => {
                cluster.etcd.small_disk().map_or(Ok(()), |disk| disk.free())?;
                match cluster.etcd.member(nth).ended()? {
                    Some(_) => cluster.etcd.restart_and_not_wait(nth),
                    None => Ok(()),
                }
            }
            (What::DiskFull, Whom::Replica(nth)) => {
                cluster.small_disk().map_or(Ok(()), |disk| disk.free())?;
                match cluster.replica(nth).has_ended()? {
                    true => cluster.replica(nth).restart_and_not_wait(),
                    false => Ok(()),
                }
            }
            (What::ClockWrong(_), _) => cluster.clock.as_ref().map_or(Ok(()), |clock| clock.jump(0)),
            _ => self.cuts(cluster, Network::mend),
        }
    }

    fn cuts(&self, cluster: &Cluster, change: impl Fn(&Network, Cut) -> Result<(), Failure>) -> Result<(), Failure> {
        let Some(network) = &cluster.network else { return Ok(()) };
        let member = |nth: usize| cluster.etcd.place(nth).address();
        let address = match self.whom {
            Whom::Member(nth) => member(nth),
            Whom::Replica(nth) => cluster.place(nth).address(),
            Whom::Leader => return Err(Failure::new("the leader is not known")),
        };
        let cuts = match self.what {
            What::CutFromMembers => {
                let others = (0..MEMBERS).map(member).filter(|other| *other != address);
                others.map(|other| Cut::Between(address, other)).collect()
            }
            What::CutFromFilters => vec![Cut::Between(address, FILTERS)],
            _ => vec![Cut::Around(address)],
        };
        cuts.into_iter().try_for_each(|cut| change(network, cut))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.whom {
            Whom::Member(nth) => write!(f, "member {nth} ")?,
            Whom::Leader => write!(f, "the leader ")?,
            Whom::Replica(nth) => write!(f, "replica {nth} ")?,
        }
        match self.what {
            What::Killed => write!(f, "killed"),
            What::Stopped => write!(f, "stopped"),
            What::Paused => write!(f, "paused"),
            What::CutOff => write!(f, "cut off"),
            What::CutFromMembers => write!(f, "cut from members"),
            What::CutFromFilters => write!(f, "cut from filters"),
            What::DiskFull => write!(f, "without disk space"),
            What::ClockWrong(seconds) => write!(f, "with a clock wrong by {seconds} s"),
        }
    }
}

/// How rare two faults at the same time are.
const PAIRS_ONCE_IN: usize = 4;
/// This program, with the Envoys, is the first node.
const FILTERS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
