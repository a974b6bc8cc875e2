"""Makes the schema of reports of its template and of the one list of counters.

    stats_schema.py TEMPLATE stats.def OUT

Where an object of the template has "$counters": GROUP, the counters of that group become fields of it, described by
their labels and required. A group without an object, or an object whose group has no counters, is an error.
"""

import json
import re
import sys

ROW = re.compile(r'^AG_STAT\(\w+,\s*(\w+),\s*(\w+),\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)', re.MULTILINE)


def groups_of(path):
    """The counters of stats.def: group -> key -> label."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    rows = ROW.findall(text)
    if not rows or len(rows) != len(re.findall(r"^AG_STAT\(", text, re.MULTILINE)):
        raise ValueError(f"{path}: a row is not read")
    groups = {}
    for group, key, label in rows:
        label = "".join(json.loads(part) for part in re.findall(r'"(?:[^"\\]|\\.)*"', label))
        if groups.setdefault(group, {}).setdefault(key, label) is not label:
            raise ValueError(f"{path}: {group} has two counters {key}")
    return groups


def unit_of(key):
    if key.endswith("bytes"):
        return "bytes"
    return "nanoseconds" if key.endswith("_ns") else "count"


def add_counters(node, groups, used):
    """Puts the counters into the template below `node`, and the names of their groups into `used`."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        add_counters(value, groups, used)
    group = node.pop("$counters", None) if isinstance(node, dict) else None
    if group is None:
        return
    if group in used or group not in groups:
        raise ValueError(f"the template names {group}, which has no counters or an object already")
    fields = {key: {"$ref": "#/$defs/" + unit_of(key), "description": label} for key, label in groups[group].items()}
    others = node.get("properties", {})
    if set(fields) & set(others):
        raise ValueError(f"the template describes counters of {group}: {sorted(set(fields) & set(others))}")
    used.add(group)
    node["properties"] = {**fields, **others}
    node["required"] = list(fields) + node.get("required", [])


def schema_of(template, counters):
    """The schema, from the paths of the two files."""
    with open(template, encoding="utf-8") as file:
        schema = json.load(file)
    groups, used = groups_of(counters), set()
    add_counters(schema, groups, used)
    if used != set(groups):
        raise ValueError(f"{template}: no object has the counters of {sorted(set(groups) - used)}")
    return schema


def main():
    template, counters, out = sys.argv[1:]
    with open(out, "w", encoding="utf-8") as file:
        json.dump(schema_of(template, counters), file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
