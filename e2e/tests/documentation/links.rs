//! Links within the repository lead to existing files and headings.

use std::collections::BTreeSet;
use std::path::Path;

use super::page::{Page, repository};

#[test]
fn each_link_names_an_existing_file_and_heading() {
    let mut broken = Vec::new();
    for page in Page::all() {
        let folder = Path::new(&page.path).parent().unwrap();
        for target in targets(&page.prose()) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() {
                page.path.clone()
            } else {
                folder.join(file).to_str().unwrap().to_owned()
            };
            if !repository().join(&path).exists() {
                broken.push(format!("{}: {target}: {path} does not exist", page.path));
            } else if !heading.is_empty() && !headings(&path).contains(heading) {
                broken.push(format!("{}: {target}: {path} has no heading of this name", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn each_page_is_in_the_index() {
    let index = Page::read(INDEX);
    let linked: BTreeSet<String> = targets(&index.prose())
        .into_iter()
        .map(|target| format!("docs/{target}"))
        .collect();
    for page in Page::all() {
        assert!(
            !page.path.starts_with("docs/") || page.path == INDEX || linked.contains(&page.path),
            "{INDEX}: {} is missing",
            page.path
        );
    }
}

/// Link targets: the text in parentheses after brackets, or after the name of a reference.
fn targets(prose: &str) -> Vec<String> {
    let behind_brackets = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let of_references = prose
        .lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "));
    behind_brackets
        .map(|(target, _)| target.to_owned())
        .chain(of_references.map(|(_, target)| target.to_owned()))
        .collect()
}

const INDEX: &str = "docs/README.md";

/// The headings of a page as link fragments: lower case, without punctuation, with hyphens for spaces.
fn headings(path: &str) -> BTreeSet<String> {
    let page = Page::read(path);
    let texts = page.prose();
    let texts = texts.lines().filter(|line| line.starts_with('#'));
    texts
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'))
                .map(|char| if char == ' ' { '-' } else { char })
                .collect()
        })
        .collect()
}
