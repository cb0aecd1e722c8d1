//! A network of nodes around one router, made of network namespaces. A test can cut paths silently: packets vanish, and
//! neither end is told.
//!
//! The test itself is a node too. It must run in a network namespace of its own, so that nothing of this is seen
//! elsewhere: `unshare --user --map-root-user --net`.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::Place;
use crate::process::Process;
use crate::{Failure, waiting};

/// The nodes and the paths between them. All end with the test.
#[derive(Debug)]
pub struct Network {
    router: Process,
    keepers: Vec<Process>,
    folder: PathBuf,
}

/// What a cut stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// All that a node sends or is sent.
    Around(Ipv4Addr),
    /// What two nodes send each other.
    Between(Ipv4Addr, Ipv4Addr),
}

impl Network {
    /// A network whose only node is the test. Its output goes into `folder`.
    ///
    /// # Errors
    /// If the test is not in a network namespace of its own, or cannot change it.
    pub fn start(folder: &Path) -> Result<Self, Failure> {
        check_that_we_are_alone()?;
        let router = keeper("the router", folder)?;
        let network = Self {
            router,
            keepers: Vec::new(),
            folder: folder.to_owned(),
        };
        ip(&["link", "set", "lo", "up"])?;
        network.inside_router("echo 1 > /proc/sys/net/ipv4/ip_forward")?;
        network.attach(None)?;
        Ok(network)
    }

    /// Another node.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn add(&mut self) -> Result<Place, Failure> {
        let keeper = keeper("a node", &self.folder)?;
        let id = keeper.id();
        self.keepers.push(keeper);
        let address = self.attach(Some(id))?;
        Ok(Place::of(address, id))
    }

    /// From now on these packets vanish.
    ///
    /// # Errors
    /// If the router cannot be changed.
    pub fn cut(&self, cut: Cut) -> Result<(), Failure> {
        self.rules("add", cut)
    }

    /// They arrive again.
    ///
    /// # Errors
    /// If they were not cut.
    pub fn mend(&self, cut: Cut) -> Result<(), Failure> {
        self.rules("del", cut)
    }

    fn rules(&self, what: &str, cut: Cut) -> Result<(), Failure> {
        let rules = match cut {
            Cut::Around(node) => [format!("from {node}"), format!("to {node}")],
            Cut::Between(one, other) => [format!("from {one} to {other}"), format!("from {other} to {one}")],
        };
        let commands = rules.map(|rule| format!("ip rule {what} {rule} blackhole pref 100"));
        self.inside_router(&commands.join(" && "))
    }

    /// Connects the namespace of this process, or ours, to the router.
    fn attach(&self, keeper: Option<u32>) -> Result<Ipv4Addr, Failure> {
        let number = self.keepers.len();
        let [near, far] = ["n", "r"].map(|end| format!("{end}{number}"));
        let third = u8::try_from(number).map_err(Failure::of("numbering a node"))?;
        let [ours, routers] = [2, 1].map(|last| Ipv4Addr::new(10, 77, third, last));
        let router = self.router.id().to_string();
        ip(&[
            "link", "add", &near, "type", "veth", "peer", "name", &far, "netns", &router,
        ])?;
        self.inside_router(&format!("ip addr add {routers}/30 dev {far} && ip link set {far} up"))?;
        let inside = format!(
            "ip link set lo up && ip addr add {ours}/30 dev {near} && ip link set {near} up && ip route add 10.77.0.0/16 \
             via {routers}"
        );
        match keeper {
            Some(keeper) => {
                ip(&["link", "set", &near, "netns", &keeper.to_string()])?;
                inside_of(keeper, &inside)?;
            }
            None => run(Command::new("sh").args(["-ec", &inside]))?,
        }
        Ok(ours)
    }

    fn inside_router(&self, script: &str) -> Result<(), Failure> {
        inside_of(self.router.id(), script)
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Around(node) => write!(f, "everything around {node}"),
            Self::Between(one, other) => write!(f, "between {one} and {other}"),
        }
    }
}

/// A process that does nothing in a network namespace of its own.
fn keeper(name: &str, folder: &Path) -> Result<Process, Failure> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sleep", "infinity"]);
    let mut keeper = Process::start(name, &mut command, &folder.join("network.log"))?;
    let ours = std::fs::read_link("/proc/self/ns/net").map_err(Failure::of("reading our namespace"))?;
    waiting::until("a network namespace", || {
        keeper.check_running()?;
        let theirs = std::fs::read_link(format!("/proc/{}/ns/net", keeper.id())).ok();
        Ok(theirs.filter(|theirs| *theirs != ours).map(|_| ()))
    })?;
    Ok(keeper)
}

fn check_that_we_are_alone() -> Result<(), Failure> {
    let listed = Command::new("ip").args(["-brief", "link"]).output();
    let listed = listed.map_err(Failure::of("running ip (package iproute2)"))?;
    let foreign = String::from_utf8_lossy(&listed.stdout)
        .lines()
        .any(|line| !line.starts_with("lo") && !line.contains("NOARP"));
    match foreign {
        false => Ok(()),
        true => Err(Failure::new(
            "this test changes the network: run it in a namespace of its own, as scripts/test-cluster.sh does",
        )),
    }
}

fn inside_of(keeper: u32, script: &str) -> Result<(), Failure> {
    run(Command::new("nsenter")
        .arg(format!("--net=/proc/{keeper}/ns/net"))
        .args(["sh", "-ec", script]))
}

fn ip(arguments: &[&str]) -> Result<(), Failure> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let done = command
        .output()
        .map_err(Failure::of(format_args!("running {command:?}")))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(Failure::new(format!("{command:?} failed: {}", said.trim())))
}
