#!/usr/bin/env python3
"""Counts the words of the documentation, and finds words that it does without.

    scripts/words.py           print the counts
    scripts/words.py --check   fail over a limit, and for each word that should be another one
    scripts/words.py --code    print the lines of code whose comments or strings have such a word

A word is what has a letter or a digit, outside of fences. Fences and `code` may hold any word, but for comments in fences.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"readme_lines": 150, "docs_words": 25_000, "internals_words": 12_000}
# Lines of code with such a word. Take it down as they go.
MAX_CODE_LINES = 40

NUMBER = "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\\w+teen|dozen|hundred|thousand|million|" + (
    "(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
)
# What to write instead. A name that is an identifier, a path or a part of a longer word is no word here.
PLAIN = {
    r"can\s+not": "cannot",
    r"whoever": "name the actor: the caller, the client, the operator",
    r"(?:no|some)body(?:'s)?": "name the actor, or: no client, a client",
    r"whatever": "any, or name it",
    r"what\s+is\s+so(?!\s+\w+\s+(?:that|as)\b)": "name it: the state, the setting",
    r"mend(?:s|ed|ing)?": "fix",
    r"voids?|voided": "invalid, or: revoke",
    r"mistakes?": "error",
    r"s?he|his|him|hers?|(?:him|her)self": "it or they, or name the actor",
    r"(?:how-)?manieth": "sequence number",
    rf"some\s+(?:\d[\d,.]*|{NUMBER})": "about",
    r"in\s+vain": "without success",
    r"no\s+plain": "say what it is",
}
WORD = "|".join(f"(?P<w{number}>{word})" for number, word in enumerate(PLAIN))
WORD = re.compile(rf"(?<![\w/+=.@{{-])(?:{WORD})(?![\w/+=@-]|\.\w)", re.I)
FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```[^\n]*$", re.M | re.S)
COMMENT_IN_FENCE = re.compile(r"(?:^|\s)(?:#|//) .*")
# In Rust: comments and the text of literals. A quote that is no literal is a lifetime.
RUST_TEXT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\b(?:b|c)?r(?P<hashes>\#*)".*?"(?P=hashes)|[bc]?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n]+?|[^'\\\n])'""",
    re.S,
)


def main():
    arguments = sys.argv[1:]
    if arguments not in ([], ["--check"], ["--code"]):
        sys.exit(__doc__)
    counted, code = counts(), list(uses_in_code())
    if arguments == ["--code"]:
        print("\n".join(code))
        return
    for name, number in counted.items():
        print(f"{name}: {number} (at most {LIMITS[name]})")
    folders = Counter(line.split("/")[0].split(":")[0] for line in code)
    print(f"lines of code with a word that has a plain one: {len(code)} (at most {MAX_CODE_LINES})")
    print("  " + ", ".join(f"{folder} {number}" for folder, number in folders.most_common()))
    if not arguments:
        return
    over = [name for name, number in counted.items() if number > LIMITS[name]]
    failures = [f"{name}: {counted[name]} is more than {LIMITS[name]}" for name in over]
    for page in pages():
        failures += uses(page, prose(page))
    if len(code) > MAX_CODE_LINES:
        failures.append(f"{len(code)} lines of code have such a word; scripts/words.py --code prints them")
    if failures:
        sys.exit("\n".join(failures))


def counts():
    """Lines of README.md, and words of the pages for users and of the internals."""
    words = Counter()
    for page in (ROOT / "docs").rglob("*.md"):
        is_internal = page.is_relative_to(ROOT / "docs/internals")
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
        words[is_internal] += sum(1 for word in text.split() if re.search(r"\w", word))
    lines = len((ROOT / "README.md").read_text().splitlines())
    return {"readme_lines": lines, "docs_words": words[False], "internals_words": words[True]}


def pages():
    return sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})


def prose(page):
    """The text of a page, at equal offsets, without code."""
    text = FENCE.sub(lambda fence: kept(fence[0], COMMENT_IN_FENCE), page.read_text())
    return re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", lambda code: " " * len(code[0]), text)


def uses_in_code():
    listing = ["git", "ls-files", "*.rs", "*.yaml", "*.py", "*.sh", "*.toml"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for path in map(ROOT.joinpath, listed.splitlines()):
        if not path.exists() or path == Path(__file__).resolve() or not WORD.search(text := path.read_text()):
            continue
        found = uses(path, kept(text, RUST_TEXT) if path.suffix == ".rs" else text)
        # A line counts once.
        yield from {use.split(": ")[0]: use for use in found}.values()


def kept(text, pattern):
    """The text, at equal offsets, with blanks for what the pattern does not match."""
    parts, end = [], 0
    for found in pattern.finditer(text):
        parts += [re.sub(r"[^\n]", " ", text[end : found.start()]), found[0]]
        end = found.end()
    return "".join(parts) + re.sub(r"[^\n]", " ", text[end:])


def uses(path, text):
    plain = list(PLAIN.values())
    for found in WORD.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield f"{path.relative_to(ROOT)}:{line}: {' '.join(found[0].split())} → {plain[int(found.lastgroup[1:])]}"


if __name__ == "__main__":
    main()
