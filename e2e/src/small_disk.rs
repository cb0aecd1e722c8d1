//! A disk small enough to fill, in its own mount namespace: no other program sees it, and it goes with the namespace.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::Process;
use crate::{Failure, waiting};

/// The disk, and the process that keeps its namespace.
#[derive(Debug)]
pub struct SmallDisk {
    keeper: Process,
    place: PathBuf,
    folder: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of this many MiB over a folder, with the folder's content. Only programs started through
    /// [`program`](Self::program) see it. Its files go into `folder`.
    ///
    /// Returns `None`, and prints why on standard error, if the system does not allow it.
    ///
    /// # Errors
    /// If it cannot be used for another reason.
    pub fn over(place: &Path, mib: u32, folder: &Path) -> Result<Option<Self>, Failure> {
        let allowed = Command::new("unshare")
            .args(UNSHARE)
            .arg("true")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !allowed.is_ok_and(|status| status.success()) {
            eprintln!(
                "SKIPPED: this system lets us have no mount namespace (unshare {})",
                UNSHARE.join(" ")
            );
            return Ok(None);
        }
        let ready = folder.join("small-disk-is-ready");
        let mut command = Command::new("unshare");
        command.args(UNSHARE).args(["sh", "-ec", KEEPER, "sh"]);
        command.arg(place).arg(format!("size={mib}m")).arg(&ready);
        let mut keeper = Process::start("the keeper of a disk", &mut command, &folder.join("small-disk.log"))?;
        waiting::until("the small disk", || {
            keeper.check_running()?;
            Ok(ready.exists().then_some(()))
        })?;
        Ok(Some(Self {
            keeper,
            place: place.to_owned(),
            folder: folder.to_owned(),
        }))
    }

    /// A program that runs the given one where it sees the disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn program(&self, program: &Path) -> Result<PathBuf, Failure> {
        let script = self.folder.join("on-the-small-disk");
        let text = format!(
            "#!/bin/sh\nexec nsenter {} {} \"$@\"\n",
            self.namespaces().join(" "),
            program.display()
        );
        fs::write(&script, text).map_err(Failure::of("writing a script"))?;
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&script, executable).map_err(Failure::of("making a script executable"))?;
        Ok(script)
    }

    /// Fills it.
    ///
    /// # Errors
    /// If the command fails.
    pub fn fill(&self) -> Result<(), Failure> {
        // It ends with an error when the disk is full.
        self.run("cat /dev/zero > \"$1/filler\" 2>/dev/null || true")
    }

    /// Fills it except for this many MiB.
    ///
    /// # Errors
    /// If the command fails.
    pub fn fill_but(&self, mib: u32) -> Result<(), Failure> {
        self.fill()?;
        self.run(&format!("truncate -s -{mib}M \"$1/filler\""))
    }

    /// Frees the space that [`fill`](Self::fill) took.
    ///
    /// # Errors
    /// If the command fails.
    pub fn free(&self) -> Result<(), Failure> {
        self.run("rm \"$1/filler\"")
    }

    /// Remounts the disk read-only. No program may have a file open for writing.
    ///
    /// # Errors
    /// If a program has.
    pub fn make_read_only(&self) -> Result<(), Failure> {
        self.run("mount -o remount,ro \"$1\"")
    }

    /// Remounts the disk writable.
    ///
    /// # Errors
    /// If the command fails.
    pub fn make_writable(&self) -> Result<(), Failure> {
        self.run("mount -o remount,rw \"$1\"")
    }

    fn run(&self, script: &str) -> Result<(), Failure> {
        let done = Command::new("nsenter")
            .args(self.namespaces())
            .args(["sh", "-ec", script, "sh"])
            .arg(&self.place)
            .output()
            .map_err(Failure::of("running nsenter"))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr);
        Err(Failure::new(format!("{script}: {}", said.trim())))
    }

    fn namespaces(&self) -> [String; 5] {
        let target = self.keeper.id().to_string();
        ["--user", "--preserve-credentials", "--mount", "--target", &target].map(str::to_owned)
    }
}

const UNSHARE: [&str; 3] = ["--user", "--map-root-user", "--mount"];
/// Arguments: the folder, the mount's options, and a file to create once mounted.
const KEEPER: &str = r#"
mount -t tmpfs -o "$2" tmpfs /mnt
cp -a "$1/." /mnt
mount --move /mnt "$1"
touch "$3"
exec sleep infinity
"#;
