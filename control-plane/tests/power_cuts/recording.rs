//! Parses the output of `strace` into operations on files below one folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, NodeId, Operation};

/// Parses the `strace` output of one process and appends its operations to the disk. Writes to the file `marks` become
/// marks.
///
/// Returns false if the process ended within a call: `strace` does not tell whether it took effect.
#[must_use]
pub(crate) fn read(trace: &str, marks: &Path, disk: &mut Disk) -> bool {
    let mut reader = Reader {
        disk,
        marks,
        handles: Vec::new(),
        descriptors: HashMap::new(),
        begun: HashMap::new(),
    };
    for line in trace.lines() {
        reader.line(line);
    }
    reader.begun.is_empty()
}

/// The system calls that change files, or that tell which file a descriptor is.
pub(crate) const CALLS: &str = "openat,open,creat,close,lseek,write,pwrite64,writev,pwritev,pwritev2,fsync,fdatasync,\
                                sync_file_range,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,ftruncate,\
                                truncate,fallocate,link,linkat,symlink,fcntl,dup,dup2,dup3,copy_file_range";

struct Reader<'a> {
    disk: &'a mut Disk,
    marks: &'a Path,
    handles: Vec<Handle>,
    descriptors: HashMap<u64, usize>,
    /// Unfinished calls by thread: their text, and the number of operations at their start. At the end, those within which
    /// the process ended.
    begun: HashMap<String, (String, usize)>,
}

struct Handle {
    target: Target,
    position: u64,
}

#[derive(Clone, Copy)]
enum Target {
    Node(NodeId),
    Marks,
}

// === impl Reader ===

impl Reader<'_> {
    fn line(&mut self, line: &str) {
        let Some((thread, call)) = line.split_once(char::is_whitespace) else {
            return;
        };
        let call = call.trim_start();
        if let Some(call) = call.strip_suffix("<unfinished ...>").or(call.strip_suffix("= ?")) {
            let begun = self.disk.operations.len();
            // Another file may get its number before it has returned.
            if let Some(descriptor) = call.trim_end().strip_prefix("close(") {
                self.descriptors.remove(&descriptor.parse().unwrap_or(u64::MAX));
            }
            self.begun
                .insert(thread.to_owned(), (call.trim_end().to_owned(), begun));
        } else if let Some(resumed) = call.strip_prefix("<... ") {
            let (_, end) = resumed.split_once(" resumed>").expect("the end of a call");
            let (begin, begun) = self.begun.remove(thread).expect("the beginning of a call");
            if begin.starts_with("close(") {
                return;
            }
            self.call(&format!("{begin}{end}"), begun);
        } else {
            let begun = self.disk.operations.len();
            self.call(call, begun);
        }
    }

    fn call(&mut self, call: &str, begun: usize) {
        let Some((name, rest)) = call.split_once('(') else {
            return;
        };
        let Some((arguments, result)) = rest.rsplit_once(" = ") else {
            return;
        };
        let arguments = arguments.trim_end().strip_suffix(')').unwrap_or(arguments);
        // A failed call has changed nothing.
        let Ok(result) = result.split(' ').next().unwrap_or_default().parse::<u64>() else {
            return;
        };
        let plain: Vec<&str> = outside_of_texts(arguments);
        let number = |place: usize| plain.get(place).and_then(|text| text.parse::<u64>().ok());
        let handle = number(0).and_then(|descriptor| self.descriptors.get(&descriptor).copied());
        match name {
            "openat" | "open" | "creat" => self.open(name, arguments, &plain, result),
            "close" => {
                self.descriptors.remove(&number(0).unwrap_or(u64::MAX));
            }
            "dup" | "dup2" | "dup3" => self.duplicate(handle, result),
            "fcntl" if arguments.contains("F_DUPFD") => self.duplicate(handle, result),
            "fcntl" => {}
            "lseek" => {
                if let Some(handle) = handle {
                    self.handles[handle].position = result;
                }
            }
            "write" | "writev" => {
                if let Some(handle) = handle {
                    let position = self.handles[handle].position;
                    self.write(handle, position, arguments, result);
                    self.handles[handle].position = position + result;
                }
            }
            "pwrite64" | "pwritev" | "pwritev2" => {
                if let Some(handle) = handle {
                    let place = if name == "pwrite64" { 3 } else { plain.len() - 1 };
                    let position = number(place).expect("an offset");
                    self.write(handle, position, arguments, result);
                }
            }
            "ftruncate" => {
                if let Some(handle) = handle
                    && let Target::Node(node) = self.handles[handle].target
                {
                    let length = number(1).expect("a length");
                    self.disk.push(Operation::Resize { node, length });
                }
            }
            "fallocate" if number(1) == Some(0) && handle.is_some() => {
                if let Some(handle) = handle
                    && let Target::Node(node) = self.handles[handle].target
                {
                    let end = number(2).expect("an offset") + number(3).expect("a length");
                    let length = self.disk.length(node).max(end);
                    self.disk.push(Operation::Resize { node, length });
                }
            }
            "fsync" | "fdatasync" => {
                if let Some(handle) = handle
                    && let Target::Node(node) = self.handles[handle].target
                {
                    let path = self.disk.path(node);
                    self.disk.push(Operation::Sync { node, begun, path });
                }
            }
            "mkdir" | "mkdirat" => self.in_folder(&path_of(arguments), Disk::make_folder),
            "unlink" | "unlinkat" | "rmdir" => self.in_folder(&path_of(arguments), Disk::remove),
            "rename" | "renameat" | "renameat2" => {
                let [from, to] = &texts(arguments)[..] else {
                    panic!("{call}");
                };
                let (from, to) = (path(from), path(to));
                if self.disk.is_inside(&from) || self.disk.is_inside(&to) {
                    self.disk.rename(&from, &to);
                }
            }
            other => {
                let concerns_us =
                    handle.is_some() || texts(arguments).iter().any(|text| self.disk.is_inside(&path(text)));
                assert!(!concerns_us, "{other} is not understood: {call}");
            }
        }
    }

    fn open(&mut self, name: &str, arguments: &str, plain: &[&str], descriptor: u64) {
        let path = path_of(arguments);
        let flags = plain
            .get(if name == "openat" { 2 } else { 1 })
            .copied()
            .unwrap_or("O_CREAT|O_TRUNC");
        let target = if path == *self.marks {
            Target::Marks
        } else if self.disk.is_inside(&path) {
            let node = match self.disk.find(&path) {
                Some(node) => node,
                None => self.disk.make_file(&path),
            };
            if flags.contains("O_TRUNC") && self.disk.length(node) > 0 {
                self.disk.push(Operation::Resize { node, length: 0 });
            }
            Target::Node(node)
        } else {
            self.descriptors.remove(&descriptor);
            return;
        };
        let position = match target {
            Target::Node(node) if flags.contains("O_APPEND") => self.disk.length(node),
            _ => 0,
        };
        self.handles.push(Handle { target, position });
        self.descriptors.insert(descriptor, self.handles.len() - 1);
    }

    fn duplicate(&mut self, handle: Option<usize>, descriptor: u64) {
        match handle {
            Some(handle) => self.descriptors.insert(descriptor, handle),
            None => self.descriptors.remove(&descriptor),
        };
    }

    fn write(&mut self, handle: usize, position: u64, arguments: &str, written: u64) {
        let mut data: Vec<u8> = texts(arguments).concat();
        data.truncate(written as usize);
        assert_eq!(data.len() as u64, written, "strace cut a text short");
        match self.handles[handle].target {
            Target::Marks => {
                let text = String::from_utf8(data).unwrap();
                for line in text.lines() {
                    self.disk.push(Operation::Mark(line.to_owned()));
                }
            }
            Target::Node(node) => self.disk.push(Operation::Write { node, position, data }),
        }
    }

    fn in_folder(&mut self, path: &Path, change: impl FnOnce(&mut Disk, &Path)) {
        if self.disk.is_inside(path) {
            change(self.disk, path);
        }
    }
}

/// The arguments, without the texts in quotation marks.
fn outside_of_texts(arguments: &str) -> Vec<&str> {
    // Texts are hexadecimal, so they contain neither a comma nor a quotation mark.
    arguments.split(',').map(str::trim).collect()
}

/// The texts in quotation marks, as bytes.
fn texts(arguments: &str) -> Vec<Vec<u8>> {
    let quoted = arguments.split('"').skip(1).step_by(2);
    quoted
        .map(|text| {
            let digits = text.split("\\x").skip(1);
            digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
        })
        .collect()
}

fn path_of(arguments: &str) -> PathBuf {
    texts(arguments).first().map(|text| path(text)).unwrap_or_default()
}

fn path(text: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(text).into_owned())
}
