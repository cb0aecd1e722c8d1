//! A page of the documentation, and its fenced code blocks.
//!
//! The rules for pages; CONTRIBUTING.md has them for writers:
//! - an `sh` block holds commands that run as printed, one block after the other in one shell;
//! - a block whose first line starts with `# In the cluster`, `# On the server` or `# With` needs that environment;
//! - a `text` block directly after it holds lines that the commands print, in this order, with `…` for any text.

use std::fs;
use std::path::{Path, PathBuf};

/// A page, read from the repository.
pub(crate) struct Page {
    /// Its path from the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A fenced code block.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    /// The language after the opening fence.
    pub(crate) language: String,
    /// The number of the line after it.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// The number of the line after the closing fence.
    end: usize,
}

/// Commands, and the output that the page states.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    /// The page and the line, for messages.
    pub(crate) place: String,
    pub(crate) text: String,
    pub(crate) prints: Option<String>,
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        let text = fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        Self {
            path: path.to_owned(),
            text,
        }
    }

    /// The pages at the root of the repository, and every page of docs/.
    pub(crate) fn all() -> Vec<Self> {
        let mut paths = pages_in("");
        let mut folders = vec!["docs/".to_owned()];
        while let Some(folder) = folders.pop() {
            paths.extend(pages_in(&folder));
            for entry in fs::read_dir(repository().join(&folder)).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    folders.push(format!("{folder}{}/", entry.file_name().to_str().unwrap()));
                }
            }
        }
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    pub(crate) fn fences(&self) -> Vec<Fence> {
        let mut fences = Vec::new();
        let mut open: Option<Fence> = None;
        for (number, line) in self.text.lines().enumerate() {
            // Blocks in a list are indented.
            let mark = line.trim_start().strip_prefix("```");
            match (&mut open, mark) {
                (None, Some(language)) => {
                    open = Some(Fence {
                        language: language.trim().to_owned(),
                        line: number + 2,
                        text: String::new(),
                        end: 0,
                    });
                }
                (Some(fence), Some(_)) => {
                    fence.end = number + 2;
                    fences.extend(open.take());
                }
                (Some(fence), None) => {
                    fence.text.push_str(line);
                    fence.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: the last fence is not closed", self.path);
        fences
    }

    /// The commands for this machine.
    pub(crate) fn commands(&self) -> Vec<Commands> {
        self.all_commands()
            .into_iter()
            .filter(|commands| !is_for_elsewhere(&commands.text))
            .collect()
    }

    /// The commands for a cluster, a server, or a tool that need not be installed here.
    pub(crate) fn commands_for_elsewhere(&self) -> Vec<Commands> {
        self.all_commands()
            .into_iter()
            .filter(|commands| is_for_elsewhere(&commands.text))
            .collect()
    }

    fn all_commands(&self) -> Vec<Commands> {
        let fences = self.fences();
        let next = fences.iter().skip(1).map(Some).chain([None]);
        let with_next = fences.iter().zip(next);
        with_next
            .filter(|(fence, _)| fence.language == "sh")
            .map(|(fence, next)| Commands {
                place: format!("{}:{}", self.path, fence.line),
                text: fence.text.clone(),
                prints: next
                    .filter(|next| next.language == "text" && next.line <= fence.end + 2)
                    .map(|next| next.text.clone()),
            })
            .collect()
    }

    /// Its text without code blocks.
    pub(crate) fn prose(&self) -> String {
        let mut fenced = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        prose
    }
}

/// The pages of a folder, which is empty or ends with a slash.
fn pages_in(folder: &str) -> Vec<String> {
    fs::read_dir(repository().join(folder))
        .unwrap()
        .map(|entry| format!("{folder}{}", entry.unwrap().file_name().to_str().unwrap()))
        .filter(|path| path.ends_with(".md"))
        .collect()
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.parent().unwrap().to_owned()
}

fn is_for_elsewhere(commands: &str) -> bool {
    // Blocks in a list are indented.
    let first = commands.trim_start();
    ["# In the cluster", "# On the server", "# With "]
        .iter()
        .any(|mark| first.starts_with(mark))
}
