//! Writes the log to standard error, on a thread of its own.
//!
//! Standard error may be a closed pipe, or one without a reader. Neither may block a revocation: lines that do not fit
//! into the queue are dropped and counted, and write errors are ignored.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::Duration;

/// Takes whole lines, and never blocks.
#[derive(Debug, Clone)]
pub(crate) struct LogOutput {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// When dropped, waits briefly for the last lines.
#[derive(Debug)]
pub(crate) struct Flush(SyncSender<Message>);

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Answered when everything before it has been written.
    Flush(SyncSender<()>),
}

/// Starts the thread that writes to `out`.
pub(crate) fn start(out: impl Write + Send + 'static) -> io::Result<(LogOutput, Flush)> {
    let (lines, queue) = mpsc::sync_channel(CAPACITY);
    let dropped = Arc::new(AtomicU64::new(0));
    let output = LogOutput {
        lines: lines.clone(),
        dropped: Arc::clone(&dropped),
    };
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write_all(&queue, &dropped, out))?;
    Ok((output, Flush(lines)))
}

// === impl LogOutput ===

impl Write for LogOutput {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let kept = line.get(..MAX_LINE_BYTES).unwrap_or(line);
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.lines.try_send(Message::Line(kept.to_vec()))
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let (done, flushed) = mpsc::sync_channel(1);
        // If the queue is full, nothing reads it, and waiting is pointless.
        if self.0.try_send(Message::Flush(done)).is_ok() {
            let _ = flushed.recv_timeout(FLUSH_TIMEOUT);
        }
    }
}

/// Writes until the last sender is gone. Write errors do not end the log.
fn write_all(queue: &Receiver<Message>, dropped: &AtomicU64, mut out: impl Write) {
    while let Ok(message) = queue.recv() {
        match message {
            Message::Line(line) => {
                let _ = out.write_all(&line);
            }
            Message::Flush(done) => {
                let _ = out.flush();
                let _ = done.try_send(());
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let _ = writeln!(
                out,
                "{lost} lines of this log were dropped: the reader was slower than the writer"
            );
        }
    }
}

/// Lines in the queue: enough for a burst, and a few megabytes at most.
const CAPACITY: usize = 1024;
/// Longer lines are cut.
const MAX_LINE_BYTES: usize = 8 << 10;
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_order_before_the_flush_ends() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (mut output, flush) = start(writer).unwrap();
        output.write_all(b"one\n").unwrap();
        output.write_all(b"two\n").unwrap();
        drop((output, flush));
        let mut written = String::new();
        io::Read::read_to_string(&mut reader, &mut written).unwrap();
        assert_eq!(written, "one\ntwo\n");
    }

    #[test]
    fn a_log_without_a_reader_never_blocks_and_reports_dropped_lines() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (mut output, flush) = start(writer).unwrap();
        for _ in 0..4 * CAPACITY {
            output.write_all(&[b'x'; 1000]).unwrap();
        }
        let read = std::thread::spawn(move || {
            let mut written = String::new();
            io::Read::read_to_string(&mut reader, &mut written).unwrap();
            written
        });
        drop((output, flush));
        assert!(read.join().unwrap().contains("lines of this log were dropped"));
    }

    #[test]
    fn a_closed_log_is_not_an_error() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let (mut output, flush) = start(writer).unwrap();
        for _ in 0..10 {
            output.write_all(b"line\n").unwrap();
        }
        drop((output, flush));
    }
}
