#!/usr/bin/env python3
"""Rewrites the generated parts of docs/.

    scripts/reference.py           rewrite them
    scripts/reference.py --check   fail if one is out of date

Such a part stands between `<!-- generated: NAME ARGUMENTS -->` and `<!-- end -->`, in any page of docs/. NAME is one of the
makers below. scripts/reference.json has the texts that are in no source ("fixes", "filter_metrics"), and the places of
versions ("versions": the file, the text before the version, what the tests do). An entry that nothing uses is an error.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS_FILE = "scripts/reference.json"
GENERATED = re.compile(r"(<!-- generated: ([^\n]*?) -->\n).*?(<!-- end -->)", re.S)


class Failure(Exception):
    """Why a part cannot be made, and what to do."""


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    reference, failures = Reference(), []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name, text = path.relative_to(ROOT), path.read_text()
        new, problems = reference.rewrite(text)
        failures += [f"{name}: {problem}" for problem in problems]
        if new != text and check:
            failures.append(f"{name} is out of date; run: make reference")
        elif new != text:
            path.write_text(new)
            print(f"{name}: rewritten")
    failures += reference.left_over()
    if failures:
        sys.exit("\n".join(failures))


class Reference:
    """Makes the parts, and records what they leave out."""

    def __init__(self):
        self.words = json.loads(read(WORDS_FILE))
        self.used = {section: set() for section in self.words}
        # By source: what the pages must have in all, and what they have.
        self.known, self.shown = {}, {}
        self.made, self.is_whole = set(), True
        self.makers = {
            "plugin": lambda *names: self.settings("docs/credence-plugin.schema.json", names),
            "control-plane": lambda *names: self.settings("docs/control-plane.schema.json", names),
            "serve": self.serve,
            "reasons": self.reasons,
            "filter-metrics": self.filter_metrics,
            "control-plane-metrics": lambda: self.metrics(lambda crate: crate not in ("issuer", "proxy")),
            "issuer-metrics": lambda: self.metrics(lambda crate: crate == "issuer"),
            "proxy-metrics": lambda: self.metrics(lambda crate: crate == "proxy"),
            "api": self.api,
            "versions": self.versions,
        }

    def rewrite(self, text):
        """The text with its parts made again, and the errors of those that cannot be made."""
        problems = []

        def make(found):
            name, *arguments = found[2].split()
            try:
                if name not in self.makers:
                    raise Failure(f"there is no such part; write one of {', '.join(self.makers)}")
                self.made.add(name)
                return found[1] + self.makers[name](*arguments) + found[3]
            except (Failure, LookupError) as failure:  # LookupError: a source does not have the expected form
                self.is_whole = False
                problems.append(f"{found[2]}: {failure if isinstance(failure, Failure) else repr(failure)}")
                return found[0]

        return GENERATED.sub(make, text), problems

    def left_over(self):
        """Entries of the sources that no page shows, and then texts that nothing uses."""
        problems = [f"no page in docs/ has a part {name}" for name in sorted(self.makers.keys() - self.made)]
        for source, known in self.known.items():
            if missing := sorted(known - self.shown[source]):
                problems.append(f"no page in docs/ shows, of {source}: {', '.join(missing)}; add it to the names of a part")
        unused = [f"{key!r} of {part}" for part, words in self.words.items() for key in words.keys() - self.used[part]]
        return [] if not self.is_whole else problems or [f"{WORDS_FILE}: nothing uses {key}; remove it" for key in sorted(unused)]

    def note(self, source, known, shown):
        self.known.setdefault(source, set()).update(known)
        self.shown.setdefault(source, set()).update(shown)

    def of(self, section, key):
        """A text that is in no source."""
        self.used[section].add(key)
        if key not in self.words[section]:
            raise Failure(f"{WORDS_FILE} has no {section} for {key}; write it")
        return self.words[section][key]

    def settings(self, schema, names):
        """The settings at or below these names, in this order: `.` means all, `-NAME` leaves some out."""
        found = dict(leaves(json.loads(read(schema))))
        unwanted = [name[1:] for name in names if name.startswith("-")]
        chosen = {
            place: found[place]
            for name in names
            for place in found
            if is_at_or_below(place, name) and not any(is_at_or_below(place, other) for other in unwanted)
        }
        if not chosen:
            raise Failure(f"{schema} has no such setting")
        self.note(schema, found, chosen)
        spans = {place: span(setting) for place, (setting, _) in chosen.items()}
        has_column = all(spans.values())
        # Settings of the same name and content share a row.
        rows = {}
        for place, (setting, is_required) in chosen.items():
            values = setting if "oneOf" in setting else setting.get("items", {})
            values = values.get("enum") or [each["const"] for each in values.get("oneOf", []) if "const" in each]
            meaning = with_values(one_line(setting["description"]), values)
            if spans[place] and not has_column:
                meaning = f"{meaning.rstrip('.')}: {spans[place]}."
            default = "required" if is_required else shown(setting.get("default"))
            row = (place.rsplit(".")[-1], default, *[spans[place]][:has_column], meaning)
            rows.setdefault(row, []).append(f"`{place}`")
        head = ["Setting", "Default", *["Range"][:has_column], "Meaning"]
        return table(head, [[", ".join(places), *row] for (_, *row), places in rows.items()])

    def serve(self):
        """Options of `credence serve`, from its short help."""
        binary = Path(os.environ.get("CREDENCE_BIN", ROOT / "target/release/credence"))
        if not binary.exists():
            raise Failure(f"{binary}, which has the options, does not exist; run: make build")
        said = subprocess.run([binary, "serve", "-h"], capture_output=True, text=True, check=True).stdout
        rows = []
        # Lines of an option are indented further.
        for name, value, text in re.findall(r"^ {6}--([\w-]+)(?: <(\w+)>)?(.*(?:\n(?: {8,}.*)?(?=\n|$))*)", said, re.M):
            text = " ".join(text.split())
            told = {key: said for key, said in re.findall(r"\[([a-z ]+): ([^\]]*)\]", text)}
            text = one_line(re.sub(r"\s*\[[a-z ]+: [^\]]*\]", "", text).rstrip(".") + ".")
            text = with_values(text, told["possible values"].split(", ") if "possible values" in told else [])
            if "env" in told:
                text += f" Or `{told['env'].split('=')[0]}`."
            rows.append([f"`--{name} {value}`".replace(" `", "`"), shown(told.get("default")), text])
        return table(["Option", "Default", "Meaning"], rows)

    def reasons(self, *arguments):
        """Reasons for a denial of these classes. With `hidden` or `shown`: those that clients do not see, or see."""
        file = "decision/src/decision.rs"
        source = read(file)
        statuses = arms(source, "fn status(self)", r"\d+")
        # The macro has a line for each: variant, code, class, title.
        found = re.findall(r'^    (\w+) "(\w+)" (\w+) "([^"]*)",$', source, re.M)
        hidden = {variant for variant, told in arms(source, "fn shown(self)", r"Self::\w+").items()}
        if unknown := set(arguments) - statuses.keys() - {"hidden", "shown"}:
            raise Failure(f"{file} has no class {', '.join(sorted(unknown))}")
        excluded = {"hidden": lambda variant: variant not in hidden, "shown": hidden.__contains__}
        rows = [
            [f"`{code}`", statuses[kind], one_line(title), self.of("fixes", code)]
            for variant, code, kind, title in found
            if kind in arguments and not any(excluded[name](variant) for name in excluded.keys() & set(arguments))
        ]
        self.note(file, [f"`{code}`" for _, code, _, _ in found], [row[0] for row in rows])
        return table(["Reason", "Status", "Meaning", "Fix"], rows)

    def filter_metrics(self):
        files = (read(f"decision/src/metrics/{name}.rs") for name in ("decisions", "gauges", "registry"))
        source = "".join(file.split("#[cfg(test)]")[0] for file in files)
        constants = dict(re.findall(r'const (\w+): &str = "(credence_\w+)";', source))
        kinds = {name: "Counter" for name in re.findall(r'Mode::.* => "(credence_\w+)"', source)}
        kinds |= {name: "Counter" for name in re.findall(r'format!\("(credence_\w+)\.', source)}
        for kind, name in re.findall(r"(?:define|tell)\((Counter|Gauge|Level|Histogram), \"?(\w+)\"?", source):
            if (name := constants.get(name, name)).startswith("credence_"):
                kinds[name] = kind
        rows = []
        # In the order of the texts, which groups related ones.
        for name in sorted(kinds, key=[*self.words["filter_metrics"], *kinds].index):
            text, kind = self.of("filter_metrics", name), kinds[name].lower()
            # Envoy exposes a level as a gauge.
            rows.append([f"`{name}`", "gauge", f"{text} Sum."] if kind == "level" else [f"`{name}`", kind, text])
        return table(["Metric", "Kind", "Meaning"], rows)

    def metrics(self, is_of):
        """Those of the crates that `is_of` accepts."""
        rows = []
        for file in sorted(ROOT.glob("*/src/**/*.rs")):
            source, prefix = file.read_text().split("#[cfg(test)]")[0], ""
            if "Group::" not in source or not is_of(file.relative_to(ROOT).parts[0]):
                continue
            kinds = dict(re.findall(r"(\w+): (Counter|Gauge|Histogram)s?\b", source))
            for found in re.finditer(METRIC, source):
                if found["group"] or found["without"]:
                    prefix = found["group"]
                else:
                    unit = "seconds" if found["add"] == "add_seconds" else (found["unit"] or "").lower()
                    kind = kinds[found["field"]].lower()
                    suffix = "total" if kind == "counter" else ""
                    name = "_".join(filter(None, ["credence", found["own"] or prefix, found["name"], unit, suffix]))
                    rows.append([f"`{name}`", kind, one_line(found["help"])])
        return table(["Metric", "Kind", "Meaning"], sorted(rows, key=lambda row: row[0].strip("`")))

    def api(self):
        rows = []
        for path, methods in json.loads(read("control-plane/openapi/openapi.json"))["paths"].items():
            for method, operation in methods.items():
                if path.startswith("/scim/"):  # RFC 7644 describes them
                    continue
                roles = re.findall(r"(?:Roles:|for the roles) ([^.]*)", operation.get("description", ""))
                # An admin has every role.
                roles = [f"`{role}`" for role in re.findall(r"\w+", *roles) if role not in ("and", "admin")] if roles else []
                roles = ", ".join(roles) or ("`admin`" if operation["security"] else "none")
                roles = f"none, or {roles}" if {} in operation["security"] else roles
                answers = ", ".join(sorted(operation["responses"].keys() - COMMON_STATUSES))
                rows.append([f"`{method.upper()} {path}`", one_line(operation["summary"]), roles, answers])
        rows.append(["`/scim/v2/…`", "SCIM users (RFC 7644)", "`provisioner`", ""])
        return table(["Endpoint", "What it does", "Role", "Answers besides 200"], rows)

    def versions(self):
        rows = []
        for name, (file, before, test) in self.words["versions"].items():
            if not (found := re.search(f"{before}v?([\\d.]+)", read(file))):
                raise Failure(f"{file} has no version behind {before}; correct `versions` in {WORDS_FILE}")
            self.used["versions"].add(name)
            rows.append([name, found[1], test])
        return table(["What", "Version", "How"], rows)


def read(path):
    return (ROOT / path).read_text()


def leaves(schema, path=""):
    """Each setting without settings below it: its name, and its description with whether it is required."""
    for name, setting in schema.get("properties", {}).items():
        place, below = f"{path}{name}", []
        parts = [(setting, "."), (setting.get("items"), "[]."), (setting.get("additionalProperties"), ".*.")]
        for part, suffix in parts if "keys" not in setting.get("properties", {}) and name != "jwk" else []:
            below += leaves(part, place + suffix) if isinstance(part, dict) else []
        yield from below or [(place, (setting, name in schema.get("required", [])))]
    for alternative in schema.get("oneOf", []):
        for name, setting in alternative.get("properties", {}).items():
            if "description" in alternative:  # otherwise it only excludes combinations of settings
                yield f"{path}{name}", ({"description": alternative["description"]} | setting, False)


def is_at_or_below(place, name):
    return name == "." or place == name or place.startswith((f"{name}.", f"{name}[]"))


def arms(source, function, value):
    """The result of a function's `match` for each variant."""
    body = source.split(function, 1)[1].split("\n    }\n", 1)[0]
    found = re.findall(rf"((?:Self::\w+[\s|]+)+)=> ({value})", body)
    return {name: given for names, given in found for name in re.findall(r"Self::(\w+)", names)}


def shown(default):
    if isinstance(default, list):
        return ", ".join(f"`{each}`" for each in default)
    if default in (None, {}):
        return ""
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return f"{int(text):,}" if text.isdigit() else f"`{text}`"


def span(setting):
    return f"{setting['minimum']:,}–{setting['maximum']:,}" if {"minimum", "maximum"} <= setting.keys() else ""


def with_values(text, values):
    return f"{text.rstrip('.')} ({', '.join(f'`{value}`' for value in values)})." if values else text


def one_line(text):
    return " ".join(text.split())


def table(head, rows):
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


METRIC = re.compile(
    r'(?P<field>\w+): (?:group|Group::new\(\w+, "(?P<own>\w+)"\))\s*\.(?P<add>add\w*)\('
    r'\s*(?:Unit::(?P<unit>\w+),\s*)?"(?P<name>\w+)",\s*"(?P<help>[^"]*)"'
    r'|Group::new\(\w+, "(?P<group>\w+)"\)|(?P<without>Group::without_prefix)'
)
# Any endpoint may return these; the page explains them.
COMMON_STATUSES = {"200", "400", "401", "403", "408", "413", "415", "429", "500", "503", "504", "507"}

if __name__ == "__main__":
    main()
