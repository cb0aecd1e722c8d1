//! No process that the tests start outlives them.
//!
//! The guardian is a small shell that gets the ids of the running processes and their folders. When the test process
//! ends in any way (normally, by Ctrl-C, even by `kill -9`), the guardian's standard input ends. It then kills the
//! remaining processes and removes the folders.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::Failure;

/// The guardian ends this process after the tests.
pub(crate) fn watch(process: u32) -> Result<(), Failure> {
    tell(&format!("watch {process}\n"))
}

/// The process has been waited for: the kernel may give its id to another process.
pub(crate) fn forget(process: u32) -> Result<(), Failure> {
    tell(&format!("forget {process}\n"))
}

/// The guardian removes this folder after the tests.
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

/// The tests never end it: it ends by itself after them.
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

/// A terminal sends signals to the whole process group; the guardian must survive them.
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

    /// If the end of a process is reported twice (killed, then dropped), the guardian neither forgets others nor grows.
    #[test]
    fn forgetting_a_process_twice_forgets_it_once() {
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
