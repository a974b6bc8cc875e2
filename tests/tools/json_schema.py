"""Checks a value against a JSON Schema: the part of the standard that our schema uses, and no more.

It needs no package, so reports are checked on every machine; where the `jsonschema` package is
installed the tests ask it too. A keyword it does not know is an error, never passed over.
"""

import json
import re

TYPES = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
}
NOTES = {"$schema", "$defs", "title", "description"}
fine = {}  # (id of a schema, value without parts): the schema, under which it was found to be right


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_type(value, types):
    types = types if isinstance(types, list) else [types]
    return any(TYPES[t](value) for t in types) or f"is not of type {' or '.join(types)}"


# keyword -> function of value and the keyword's own value: True, or what is wrong.
SIMPLE = {
    "type": check_type,
    "const": lambda v, expected: v == expected or f"is not {expected!r}",
    "enum": lambda v, allowed: v in allowed or f"is none of {allowed}",
    "minimum": lambda v, least: not is_number(v) or v >= least or f"is less than {least}",
    "minLength": lambda v, n: not isinstance(v, str) or len(v) >= n or f"is shorter than {n}",
    "minItems": lambda v, n: not isinstance(v, list) or len(v) >= n or f"has fewer than {n} items",
    "pattern": lambda v, p: not isinstance(v, str) or bool(re.search(p, v)) or f"does not match {p}",
    "required": lambda v, names: (not isinstance(v, dict) or all(n in v for n in names)
                                  or f"lacks {[n for n in names if n not in v]}"),
}


def problems(value, schema, closed=False, root=None, where="report"):
    """What is wrong with `value`, a list of lines. `closed` also refuses fields the schema does not
    name, which readers of a report must accept but its writer has no business writing."""
    root = schema if root is None else root
    known = None if isinstance(value, (dict, list)) else (id(schema), type(value), value)
    if known in fine:
        return []
    found = []
    for keyword, expected in schema.items():
        if keyword in SIMPLE:
            verdict = SIMPLE[keyword](value, expected)
            if verdict is not True:
                found.append(f"{where}: {json.dumps(value)[:60]} {verdict}")
        elif keyword == "$ref":
            target = root["$defs"][expected.removeprefix("#/$defs/")]
            found += problems(value, target, closed, root, where)
        elif keyword == "items" and isinstance(value, list):
            for i, item in enumerate(value):
                found += problems(item, expected, closed, root, f"{where}[{i}]")
        elif keyword == "propertyNames" and isinstance(value, dict):
            for name in value:
                found += problems(name, expected, closed, root, f"{where}, the name {name}")
        elif keyword not in NOTES | {"items", "propertyNames", "properties", "additionalProperties"}:
            raise ValueError(f"the schema uses {keyword}, which is not known here")
    if isinstance(value, dict) and schema.keys() & {"properties", "additionalProperties"}:
        found += problems_of_fields(value, schema, closed, root, where)
    if known and not found:
        fine[known] = schema
    return found


def problems_of_fields(value, schema, closed, root, where):
    found = []
    named = schema.get("properties", {})
    for name, field in value.items():
        if name in named:
            found += problems(field, named[name], closed, root, f"{where}.{name}")
        elif "additionalProperties" in schema:
            found += problems(field, schema["additionalProperties"], closed, root, f"{where}.{name}")
        elif closed:
            found.append(f"{where}.{name}: the schema does not name this field")
    return found
