//! Nothing that we start survives us, however we end.
//!
//! A guardian, a small shell, is told the ids of the processes that run and the folders they use. When we are gone (a
//! normal end, Ctrl-C, even `kill -9`) its standard input ends; it then ends what is left and removes the folders.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::Failure;

/// From now on this process dies with us.
pub(crate) fn watch(process: u32) -> Result<(), Failure> {
    tell(&format!("watch {process}\n"))
}

/// The process has been waited for: its id may be somebody else's now.
pub(crate) fn forget(process: u32) -> Result<(), Failure> {
    tell(&format!("forget {process}\n"))
}

/// From now on this folder goes with us.
pub(crate) fn own(folder: &Path) -> Result<(), Failure> {
    tell(&format!("own {}\n", folder.display()))
}

fn tell(message: &str) -> Result<(), Failure> {
    let mut guardian = GUARDIAN.lock().unwrap_or_else(PoisonError::into_inner);
    let guardian = guardian.as_mut().map_err(|failure| failure.clone())?;
    let stdin = guardian
        .stdin
        .as_mut()
        .ok_or_else(|| Failure::new("the guardian takes no messages"))?;
    stdin
        .write_all(message.as_bytes())
        .map_err(Failure::of("telling the guardian what to watch"))
}

/// Never ended by us: it ends by itself once we are gone.
static GUARDIAN: LazyLock<Mutex<Result<Child, Failure>>> = LazyLock::new(|| Mutex::new(start()));

fn start() -> Result<Child, Failure> {
    Command::new("/bin/sh")
        .args(["-c", SCRIPT])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Failure::of("starting /bin/sh to watch over the processes"))
}

/// The signals of a terminal go to the whole group; the guardian is the one that stays.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
processes=' '
while read -r action subject; do
    case $action in
        watch) processes="$processes$subject " ;;
        forget)
            case $processes in
                *" $subject "*) processes="${processes%% $subject *} ${processes#* $subject }" ;;
            esac
            ;;
        own) set -- "$@" "$subject" ;;
    esac
done
kill -KILL $processes
sleep 0.1
rm -rf -- "$@"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    /// Told twice of an end, as when a process is killed and then dropped, it neither forgets others nor grows.
    #[test]
    fn what_is_forgotten_twice_is_forgotten_once() {
        let script = SCRIPT.replace("kill -KILL $processes", "printf %s \"$processes\"");
        let mut guardian = Command::new("/bin/sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = "watch 11\nwatch 12\nwatch 13\nforget 12\nforget 12\nforget 12\nforget 99\n";
        guardian.stdin.take().unwrap().write_all(told.as_bytes()).unwrap();
        let said = guardian.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), " 11 13 ");
    }
}
