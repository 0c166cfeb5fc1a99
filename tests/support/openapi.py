"""spec/openapi.yaml for tests: read, and answers held against it.

The file is YAML of a plain kind (blocks of two spaces, folded text, JSON for short values), which
needs no library; the schemas use what valid() knows, and it refuses what it does not know."""
# SPDX-License-Identifier: MIT
import json
import os
import re

import rooms

FILE = os.path.join(rooms.ROOT, "spec", "openapi.yaml")
KEY = re.compile(r'("(?:[^"\\]|\\.)*"|[^"\s#][^:#]*):(?: (.*))?$')
KNOWN = {"type", "properties", "required", "additionalProperties", "items", "enum", "nullable",
         "pattern", "minimum", "maximum", "description", "example", "format", "default", "$ref"}


# ---- YAML ----

def scalar(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


class Lines:
    def __init__(self, text):
        self.lines = [(len(line) - len(line.lstrip()), line.strip())
                      for line in text.splitlines() if line.strip() and line.strip()[0] != "#"]
        self.at = 0

    def indent(self):
        return self.lines[self.at][0] if self.at < len(self.lines) else -1

    def folded(self, indent):
        words = []
        while self.indent() >= indent:
            words.append(self.lines[self.at][1])
            self.at += 1
        return " ".join(words)

    def value(self, text, indent):
        """What stands behind a key, or below it."""
        if text == ">-":
            return self.folded(indent + 1)
        if text:
            return scalar(text)
        return self.block(self.indent()) if self.indent() > indent else None

    def block(self, indent):
        out = [] if self.lines[self.at][1].startswith("- ") else {}
        while self.indent() == indent:
            line = self.lines[self.at][1]
            if isinstance(out, list):
                rest = line[2:]
                if KEY.match(rest) and rest[0] not in "{[":
                    self.lines[self.at] = (indent + 2, rest)
                    out.append(self.block(indent + 2))
                else:
                    self.at += 1
                    out.append(scalar(rest))
                continue
            key, text = KEY.match(line).groups()
            key = json.loads(key) if key[0] == '"' else key
            if key in out:
                raise ValueError("twice: " + key)
            self.at += 1
            out[key] = self.value(text, indent)
        if self.indent() > indent:
            raise ValueError("indented: %r" % (self.lines[self.at],))
        return out


def read(path=FILE):
    with open(path, encoding="utf-8") as f:
        return Lines(f.read()).block(0)


# ---- Schemas ----

def resolve(doc, thing):
    while "$ref" in thing:
        path = thing["$ref"]
        thing = doc
        for name in path[2:].split("/"):
            thing = thing[name]
    return thing


TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int,
         "number": (int, float)}


def valid(doc, schema, value, where="answer"):
    """The first thing that is wrong, or None."""
    schema = resolve(doc, schema)
    if set(schema) - KNOWN:
        raise ValueError("%s: %s" % (where, set(schema) - KNOWN))
    if value is None:
        return None if schema.get("nullable") else where + ": null"
    kind = schema["type"]
    if not isinstance(value, TYPES[kind]) or (kind != "boolean" and isinstance(value, bool)):
        return "%s: %r is no %s" % (where, value, kind)
    if "enum" in schema and value not in schema["enum"]:
        return "%s: %r is none of %s" % (where, value, schema["enum"])
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return "%s: %r does not match" % (where, value)
    if not schema.get("minimum", value) <= value <= schema.get("maximum", value) \
            if kind in ("integer", "number") else False:
        return "%s: %r is out of range" % (where, value)
    if kind == "array":
        return next(filter(None, (valid(doc, schema["items"], item, "%s[%d]" % (where, i))
                                  for i, item in enumerate(value))), None)
    if kind == "object":
        return valid_object(doc, schema, value, where)
    return None


def valid_object(doc, schema, value, where):
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", []) if name not in value]
    unknown = [name for name in value if name not in properties]
    if missing or (unknown and schema.get("additionalProperties") is False):
        return "%s: missing %s, unknown %s" % (where, missing, unknown)
    return next(filter(None, (valid(doc, properties[name], item, where + "." + name)
                              for name, item in value.items())), None)


# ---- Operations ----

def operations(doc):
    """(method, path): operation"""
    return {(method.upper(), path): operation for path, methods in doc["paths"].items()
            for method, operation in methods.items()}


def find(doc, method, target):
    """The operation that a request is; None: none."""
    path = target.split("?")[0].split("/")
    for (m, template), operation in operations(doc).items():
        parts = template.split("/")
        if m == ("GET" if method == "HEAD" else method) and len(parts) == len(path) and all(
                a == b or a.startswith("{") for a, b in zip(parts, path)):
            return operation
    return None


def wrong(doc, method, target, status, content_type, body):
    """What is wrong with an answer; None: nothing."""
    operation = find(doc, method, target)
    problem = content_type == "application/problem+json"
    if operation is None:
        return None if problem else "%s %s: %s" % (method, target, content_type)
    if str(status) not in operation["responses"]:
        return "%s %s: %d is not described" % (method, target, status)
    content = resolve(doc, operation["responses"][str(status)]).get("content", {})
    kinds = {kind: media["schema"] for kind, media in content.items()}
    kind = content_type.split(";")[0]
    if kind not in kinds:
        return "%s %s: %d as %s" % (method, target, status, content_type)
    value = json.loads(body) if "json" in kind else body.decode()
    return valid(doc, kinds[kind], value, "%s %s" % (method, target))
