"""Counts product code and the documentation's words, and finds import cycles between files.

A line counts unless it is blank, a comment, or part of a test. Product code is every .rs and .proto file outside the
folders of NOT_PRODUCT and outside a crate's tests/, benches/, examples/ and generated/.

File A imports file B if A names an item that B defines: in a `use`, or in a path that starts with `crate`, `self`, `super`
or a module of A. An item that a module re-exports with `pub use` belongs to the file that defines it. A re-export or a
`mod` declaration is not an import. Code that is compiled only for tests is left out.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True  # leave nothing behind in the working tree
import words

NOT_PRODUCT = {"e2e", "fuzz", "interop", "loadtest", "scripts"}
NOT_PRODUCT_FOLDERS = {"tests", "benches", "examples", "generated"}
CONTROL_PLANE = "control-plane"
SHELL = "filter"


class Source:
    """A file's text without comments and tests; `plain` is also without the contents of literals, at equal offsets."""

    def __init__(self, path):
        self.path = path
        self.code, self.plain = without_comments(path.read_text())
        self.test_modules = set()
        if path.suffix == ".rs":
            self.cut_tests()

    def cut_tests(self):
        for attribute in re.finditer(r"#\[cfg\((?:all\()?test\b[^\]]*\]", self.plain):
            end = item_end(self.plain, attribute.end())
            declared = re.search(r"\bmod\s+(\w+)\s*;", self.plain[attribute.start() : end])
            if declared:
                named = re.search(r'#\[path\s*=\s*"([^"]+)"', self.code[attribute.start() : end])
                self.test_modules.add(named[1] if named else declared[1])
            self.blank(attribute.start(), end)

    def modules(self):
        """The names of the modules that it declares, or their files."""
        declared = r'(?:#\[path\s*=\s*"([^"]+)"\]\s*)?(?:pub(?:\([^)]*\))?\s+)?\bmod\s+(\w+)\s*;'
        return [file or name for file, name in re.findall(declared, self.code)]

    def blank(self, start, end):
        for name in ("code", "plain"):
            text = getattr(self, name)
            setattr(self, name, text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:])

    def lines(self):
        return sum(1 for line in self.code.split("\n") if line.strip())


TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*)
      | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)")
      | (?P<string>\b[bc]?"|")
      | (?P<char>b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])')""",
    re.X,
)


def without_comments(text):
    code, plain = list(text), list(text)

    def blank(target, start, end):
        for at in range(start, end):
            if target[at] != "\n":
                target[at] = " "

    at = 0
    while found := TOKEN.search(text, at):
        start, end = found.start(), found.end()
        if found["comment"]:
            if text.startswith("/*", start):
                end = block_comment_end(text, start)
            blank(code, start, end)
            blank(plain, start, end)
        else:
            if found["raw"]:
                end = text.index('"' + found["hashes"], end) + 1 + len(found["hashes"])
            elif found["string"]:
                while text[end] != '"':
                    end += 2 if text[end] == "\\" else 1
                end += 1
            blank(plain, start + 1, end - 1)
        at = end
    return "".join(code), "".join(plain)


def block_comment_end(text, start):
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return start + mark.end()
    return len(text)


def item_end(plain, at):
    """The end of the item after an attribute: after its braces, or its semicolon."""
    depth = 0
    while at < len(plain):
        if plain[at] in "([{":
            depth += 1
        elif plain[at] in ")]}":
            depth -= 1
            if depth < 0:
                return at
            if depth == 0 and plain[at] == "}":
                return at + 1
        elif plain[at] in ";," and depth == 0:
            return at + 1
        at += 1
    return at


class Module:
    def __init__(self, source, path):
        self.source = source
        self.path = path  # ("crate", "a", "b")
        self.children = {}
        self.passed_on = {}  # name -> absolute path it stands for
        self.globs = []  # absolute paths of modules that are imported whole

    def defines(self, name):
        return re.search(
            rf"\b(?:struct|enum|union|trait|fn|const|static|type|macro_rules!)\s+(?:mut\s+)?{re.escape(name)}\b",
            self.source.plain,
        )


class Crate:
    """The modules of one crate, from its root file."""

    def __init__(self, root, sources):
        self.sources = sources
        self.modules = {}
        self.load(root, ("crate",), root.parent)
        for module in list(self.modules.values()):
            self.note_uses(module)

    def load(self, file, path, folder):
        source = self.sources.get(file)
        if source is None:
            return
        module = self.modules[path] = Module(source, path)
        for found in re.finditer(r"\bmod\s+(\w+)\s*;", source.plain):
            name = found[1]
            attribute = re.search(r'#\[path\s*=\s*"([^"]+)"\]\s*(?:pub(?:\([^)]*\))?\s+)?$', source.code[: found.start()])
            candidates = (
                [file.parent / attribute[1]]
                if attribute
                else [folder / f"{name}.rs", folder / name / "mod.rs"]
            )
            child = next((each for each in candidates if each in self.sources), None)
            if child:
                module.children[name] = path + (name,)
                self.load(child, path + (name,), folder / name)

    def note_uses(self, module):
        module.uses = []
        plain = module.source.plain
        for found in re.finditer(r"(\bpub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);", plain):
            rest = plain[: found.start()] + plain[found.end() :]
            for path, name in leaves(found[2]):
                absolute = self.absolute(module, path)
                if absolute is None:
                    continue
                if not found[1] or re.search(rf"\b{re.escape(name)}\b", rest):
                    module.uses.append(absolute)
                if name == "*":
                    module.globs.append(absolute[:-1])
                else:
                    module.passed_on[name] = absolute

    def absolute(self, module, path):
        """The path from the crate's root; `None` if it leads to another crate."""
        head, rest = path[0], tuple(path[1:])
        if head == "crate":
            return ("crate",) + rest
        if head == "self":
            return module.path + rest
        if head == "super":
            base = module.path[:-1]
            while rest[:1] == ("super",):
                base, rest = base[:-1], rest[1:]
            return base + rest
        if head in module.children:
            return module.children[head] + rest
        return None

    def home(self, path, seen=()):
        """The module that defines the item of a path."""
        if path in seen:
            return None
        module = self.modules.get(("crate",))
        for at, name in enumerate(path[1:], 1):
            if name in module.children:
                module = self.modules[module.children[name]]
                continue
            rest = path[at + 1 :]
            if not module.defines(name):
                if name in module.passed_on:
                    return self.home(module.passed_on[name] + rest, (*seen, path))
                for glob in module.globs:
                    other = self.home(glob + (name,), (*seen, path))
                    if other is not None and other.defines(name):
                        return other
            return module
        return module

    def imports(self):
        """(file, file, name) for each import within the crate."""
        found = set()
        for module in self.modules.values():
            paths = list(module.uses)
            elsewhere = re.sub(r"\buse\s+[^;]+;", "", module.source.plain)
            for path in re.finditer(r"(?<![\w:])((?:crate|self|super|[a-z_][a-z0-9_]*)(?:\s*::\s*\w+)+)", elsewhere):
                absolute = self.absolute(module, re.split(r"\s*::\s*", path[1]))
                if absolute:
                    paths.append(absolute)
            for path in paths:
                if path[-1] in ("*", "self"):
                    path = path[:-1]
                home = self.home(path)
                # A module itself: the paths after it find what is used from it.
                if home is None or home.path == path and not self.is_room(home):
                    continue
                if home.source.path != module.source.path:
                    found.add((module.source.path, home.source.path, path[-1]))
        return found

    @staticmethod
    def is_room(module):
        """Whether a file defines items itself, and does not only declare modules and re-export names."""
        return re.search(r"\b(?:struct|enum|union|trait|fn|const|static|type|macro_rules!)\s+\w+", module.source.plain)


def leaves(tree):
    """Each path of a `use`, and its local name."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace == -1:
        path, _, alias = tree.partition(" as ")
        parts = [part.strip() for part in path.split("::") if part.strip()]
        if parts and parts[-1] == "self" and len(parts) > 1:
            parts.pop()
        if parts:
            yield parts, (alias.strip() or parts[-1])
        return
    prefix = tree[:brace]
    for inner in split_commas(tree[brace + 1 : tree.rindex("}")]):
        yield from leaves(prefix + inner.strip())


def split_commas(text):
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    if text[start:].strip():
        yield text[start:]


def circles(arrows):
    """Tarjan's strongly connected components of more than one file."""
    graph = {}
    for start, end, _ in arrows:
        graph.setdefault(start, set()).add(end)
        graph.setdefault(end, set())
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for following in sorted(graph[node]):
            if following not in order:
                visit(following)
                low[node] = min(low[node], low[following])
            elif following in stack:
                low[node] = min(low[node], order[following])
        if low[node] == order[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for node in sorted(graph):
        if node not in order:
            visit(node)
    return found


def test_files(sources):
    """The modules under `cfg(test)`, and those that they declare."""
    found, left = set(), [(path, name) for path, source in sources.items() for name in source.test_modules]
    while left:
        path, name = left.pop()
        stem = path.parent if path.stem in ("lib", "main", "mod") else path.parent / path.stem
        candidates = (path.parent / name, stem / f"{name}.rs", stem / name / "mod.rs")
        for file in candidates:
            if file in sources and file not in found:
                found.add(file)
                left += [(file, inner) for inner in sources[file].modules()]
    return found


def main():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.proto"],
        check=True, capture_output=True, text=True,
    ).stdout.split()
    sources = {path: Source(path) for path in map(Path, listed) if path.exists()}

    tests = test_files(sources)
    sources = {path: source for path, source in sources.items() if path not in tests}

    lines = Counter()
    for path, source in sources.items():
        if path.parts[0] not in NOT_PRODUCT and not NOT_PRODUCT_FOLDERS & set(path.parts[:-1]):
            lines[path.parts[0]] += source.lines()
    for crate, count in sorted(lines.items()):
        print(f"{crate:<16}{count:>7}")

    arrows = set()
    roots = [path for path in sources if path.name in ("lib.rs", "main.rs") and path.parent.name == "src"]
    roots += [path for path in sources if path.parent.name == "bin"]
    for root in roots:
        arrows |= Crate(root, sources).imports()
    found = circles(arrows)
    for number, circle in enumerate(found, 1):
        print(f"circle {number}: {len(circle)} files")
        names = {}
        for start, end, name in sorted(arrows):
            if start in circle and end in circle:
                names.setdefault((start, end), []).append(name)
        for (start, end), taken in names.items():
            print(f"  {start} -> {end}: {', '.join(taken)}")

    print(json.dumps({
        "product_lines": lines.total(),
        "control_plane_lines": lines[CONTROL_PLANE],
        "filter_shell_lines": lines[SHELL],
        "import_circles": len(found),
        **words.counts(),
    }))
    if "--check" in sys.argv[1:] and found:
        sys.exit("error: files import each other in a circle (above); move the shared items to a file below both")


main()
