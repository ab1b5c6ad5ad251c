"""Schemas as programs send them: of Pydantic, of zod, of OpenAI's documents, written by hand."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def closed(properties: Schema, **more: Any) -> Schema:
    """An object as OpenAI's strict mode wants it: all properties required, no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}


def tagged(tag: str, value: str, **properties: Any) -> Schema:
    return closed({tag: {"type": "string", "const": value}, **properties})


SCHEMAS: dict[str, Schema] = {
    # Pydantic's model_json_schema().
    "pydantic model": {
        "properties": {
            "name": {"title": "Name", "type": "string"},
            "age": {"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "Age"},
            "email": {"default": "", "title": "Email", "type": "string"},
        },
        "required": ["name", "age"],
        "title": "User",
        "type": "object",
    },
    "pydantic nested": {
        "$defs": {
            "Address": {
                "properties": {
                    "street": {"title": "Street", "type": "string"},
                    "zip": {"pattern": "^[0-9]{5}$", "title": "Zip", "type": "string"},
                },
                "required": ["street", "zip"],
                "title": "Address",
                "type": "object",
            }
        },
        "properties": {
            "home": {"$ref": "#/$defs/Address"},
            "others": {"items": {"$ref": "#/$defs/Address"}, "title": "Others", "type": "array"},
        },
        "required": ["home"],
        "title": "Person",
        "type": "object",
    },
    "pydantic discriminated union": {
        "$defs": {
            "Cat": {
                "properties": {
                    "kind": {"const": "cat", "title": "Kind", "type": "string"},
                    "lives": {"title": "Lives", "type": "integer"},
                },
                "required": ["kind", "lives"],
                "title": "Cat",
                "type": "object",
            },
            "Dog": {
                "properties": {
                    "kind": {"const": "dog", "title": "Kind", "type": "string"},
                    "barks": {"title": "Barks", "type": "boolean"},
                },
                "required": ["kind", "barks"],
                "title": "Dog",
                "type": "object",
            },
        },
        "properties": {
            "pet": {
                "discriminator": {
                    "mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
                    "propertyName": "kind",
                },
                "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
                "title": "Pet",
            }
        },
        "required": ["pet"],
        "title": "Owner",
        "type": "object",
    },
    "pydantic recursive": {
        "$defs": {
            "Node": {
                "properties": {
                    "value": {"title": "Value", "type": "integer"},
                    "next": {
                        "anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}],
                        "default": None,
                    },
                },
                "required": ["value"],
                "title": "Node",
                "type": "object",
            }
        },
        "$ref": "#/$defs/Node",
    },
    "pydantic enum": {
        "$defs": {"Color": {"enum": ["red", "green", "blue"], "title": "Color", "type": "string"}},
        "properties": {
            "color": {"$ref": "#/$defs/Color", "description": "of the car"},
            "doors": {"enum": [2, 4], "title": "Doors", "type": "integer"},
        },
        "required": ["color", "doors"],
        "type": "object",
    },
    "pydantic constraints": {
        "properties": {
            "stars": {"maximum": 5, "minimum": 1, "title": "Stars", "type": "integer"},
            "price": {"exclusiveMinimum": 0, "title": "Price", "type": "number"},
            "code": {"maxLength": 6, "minLength": 2, "title": "Code", "type": "string"},
            "tags": {
                "items": {"type": "string"},
                "maxItems": 3,
                "minItems": 1,
                "title": "Tags",
                "type": "array",
            },
        },
        "required": ["stars", "price", "code", "tags"],
        "type": "object",
    },
    "pydantic tuple": {
        "properties": {
            "point": {
                "maxItems": 2,
                "minItems": 2,
                "prefixItems": [{"type": "number"}, {"type": "number"}],
                "type": "array",
            }
        },
        "required": ["point"],
        "type": "object",
    },
    "pydantic dict": {
        "properties": {
            "scores": {"additionalProperties": {"type": "integer"}, "type": "object"},
            "extra": {"additionalProperties": True, "type": "object"},
        },
        "required": ["scores"],
        "type": "object",
    },
    "pydantic dates": {
        "properties": {
            "day": {"format": "date", "type": "string"},
            "at": {"format": "date-time", "type": "string"},
            "id": {"format": "uuid", "type": "string"},
            "took": {"format": "duration", "type": "string"},
        },
        "required": ["day", "at", "id", "took"],
        "type": "object",
    },
    "pydantic decimal": {
        "properties": {
            "cost": {
                "anyOf": [
                    {"minimum": 0, "type": "number"},
                    {"pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "type": "string"},
                ]
            }
        },
        "required": ["cost"],
        "type": "object",
    },
    "pydantic list": {"items": {"$ref": "#/$defs/A"}, "$defs": {"A": closed({"a": INTEGER})}},
    "pydantic pattern dict": {
        "type": "object",
        "patternProperties": {"^[a-z]{2}$": {"type": "string"}},
        "additionalProperties": False,
    },
    # zod's toJSONSchema, and zod-to-json-schema for draft 7.
    "zod object": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **closed({"id": {"type": "integer", "minimum": -9007199254740991}, "ok": BOOLEAN}),
    },
    "zod nullable": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **closed({"a": {"type": ["string", "null"]}, "b": {"anyOf": [NUMBER, NULL]}}),
    },
    "zod tuple": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"type": "string"}, {"type": "number"}],
        "minItems": 2,
        "maxItems": 2,
    },
    "zod tuple with rest": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [STRING],
        "additionalItems": INTEGER,
        "minItems": 1,
    },
    "zod record": {
        "type": "object",
        "propertyNames": {"type": "string", "pattern": "^[a-z]+$"},
        "additionalProperties": {"type": "number"},
    },
    "zod intersection": {
        "allOf": [
            {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
            {"type": "object", "properties": {"b": INTEGER}, "required": ["b"]},
        ]
    },
    "zod definitions": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/Tree",
        "definitions": {
            "Tree": closed(
                {
                    "label": STRING,
                    "parts": {"type": "array", "items": {"$ref": "#/definitions/Tree"}},
                }
            )
        },
    },
    "zod email": closed({"email": {"type": "string", "format": "email"}}),
    "zod literal union": closed({"v": {"anyOf": [{"const": "a"}, {"const": 1}, {"const": True}]}}),
    "zod discriminated union": {
        "oneOf": [tagged("type", "ok", data=STRING), tagged("type", "error", code=INTEGER)]
    },
    # OpenAI's documents.
    "openai calendar event": closed(
        {
            "name": STRING,
            "date": STRING,
            "participants": {"type": "array", "items": {"type": "string"}},
        }
    ),
    "openai math steps": closed(
        {
            "steps": {
                "type": "array",
                "items": closed({"explanation": STRING, "output": STRING}),
            },
            "final_answer": STRING,
        }
    ),
    "openai user interface": {
        "$defs": {},
        **closed(
            {
                "type": {"type": "string", "enum": ["div", "button", "header"]},
                "label": STRING,
                "children": {"type": "array", "items": {"$ref": "#"}},
                "attributes": {"type": "array", "items": closed({"name": STRING, "value": STRING})},
            }
        ),
    },
    "openai linked list": closed(
        {"linked_list": {"$ref": "#/$defs/node"}},
        **{
            "$defs": {
                "node": closed(
                    {"value": NUMBER, "next": {"anyOf": [{"$ref": "#/$defs/node"}, NULL]}}
                )
            }
        },
    ),
    "openai any of": closed(
        {
            "item": {
                "anyOf": [
                    closed({"name": STRING, "age": NUMBER}),
                    closed({"number": STRING, "street": STRING, "city": STRING}),
                ]
            }
        }
    ),
    "openai weather tool": closed(
        {
            "location": {"type": "string", "description": "City and country"},
            "units": {"type": ["string", "null"], "enum": ["celsius", "fahrenheit", None]},
        }
    ),
    "openai temperature": closed(
        {"temperature": {"type": "number", "minimum": -130, "maximum": 130}}
    ),
    "openai username": closed(
        {"username": {"type": "string", "pattern": "^@[a-zA-Z0-9_]+$"}, "mail": STRING}
    ),
    "openai moderation": closed(
        {"is_violating": BOOLEAN, "category": {"enum": ["violence", "sexual", None]}}
    ),
    # Configurations, records and the corners of the language.
    "any value": {},
    "any object": {"type": "object"},
    "any array": {"type": "array"},
    "string": STRING,
    "number": NUMBER,
    "integer": INTEGER,
    "all types": {"type": ["null", "boolean", "integer", "string", "array"]},
    "enum of all kinds": {"enum": ['a"\\\n', 1, -2.5, None, True, [1, "x"], {"a": {"b": []}}]},
    "package": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$", "maxLength": 20},
            "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
            "dependencies": {"type": "object", "additionalProperties": STRING},
            "private": BOOLEAN,
        },
        "required": ["name", "version"],
    },
    "server": {
        "type": "object",
        "properties": {
            "host": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}], "type": "string"},
            "port": {"type": "integer", "minimum": 1, "maximum": 65535},
            "url": {"type": "string", "format": "uri"},
        },
        "required": ["host", "port"],
        "additionalProperties": False,
    },
    "geometry": {
        "oneOf": [
            closed(
                {
                    "type": {"enum": ["Point"]},
                    "coordinates": {"type": "array", "items": NUMBER, "minItems": 2},
                }
            ),
            closed(
                {
                    "type": {"enum": ["LineString"]},
                    "coordinates": {
                        "type": "array",
                        "minItems": 2,
                        "items": {"type": "array", "items": NUMBER, "minItems": 2},
                    },
                }
            ),
        ]
    },
    "expression": {
        "$ref": "#/$defs/e",
        "$defs": {
            "e": {
                "anyOf": [
                    INTEGER,
                    closed({"op": {"enum": ["+", "*"]}, "args": {"$ref": "#/$defs/two"}}),
                ]
            },
            "two": {
                "type": "array",
                "prefixItems": [{"$ref": "#/$defs/e"}, {"$ref": "#/$defs/e"}],
                "items": False,
                "minItems": 2,
            },
        },
    },
    "inheritance": {
        "allOf": [
            {"$ref": "#/$defs/base"},
            {"properties": {"size": INTEGER}, "required": ["size"]},
        ],
        "$defs": {
            "base": {"type": "object", "properties": {"id": STRING}, "required": ["id"]},
        },
        "unevaluatedProperties": False,
    },
    "condition": {
        "type": "object",
        "properties": {"country": {"enum": ["US", "NL"]}, "zip": STRING},
        "required": ["country", "zip"],
        "if": {"properties": {"country": {"const": "US"}}},
        "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}},
        "else": {"properties": {"zip": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}},
        "additionalProperties": False,
    },
    "dependent": {
        "type": "object",
        "properties": {"card": INTEGER, "address": STRING, "name": STRING},
        "dependentRequired": {"card": ["address"]},
        "additionalProperties": False,
    },
    "not": {"type": "object", "properties": {"id": {"not": {"type": ["object", "array"]}}}},
    "not an enum": {"type": "string", "not": {"enum": ["", "none"]}, "maxLength": 5},
    "multiples": {
        "type": "object",
        "properties": {
            "quarter": {"type": "number", "multipleOf": 0.25, "minimum": -1, "maximum": 3},
            "dozen": {"type": "integer", "multipleOf": 12, "maximum": 144},
            "cents": {"type": "number", "multipleOf": 0.01},
        },
        "required": ["quarter", "dozen", "cents"],
        "additionalProperties": False,
    },
    "ranges": {
        "type": "array",
        "prefixItems": [
            {"type": "number", "exclusiveMinimum": -1.5, "maximum": 12.25},
            {"type": "integer", "minimum": -17, "exclusiveMaximum": 1005},
            {"type": "number", "minimum": 0.001},
        ],
        "minItems": 3,
    },
    "lengths": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 2}},
    "sizes": {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 5},
    "matrix": {
        "type": "array",
        "items": {"type": "array", "items": NUMBER, "minItems": 3, "maxItems": 3},
        "minItems": 2,
        "maxItems": 2,
    },
    "contains": {"type": "array", "items": {"type": ["integer", "string"]}, "contains": INTEGER},
    "few members": {
        "type": "object",
        "properties": {"a": INTEGER, "b": STRING, "c": BOOLEAN, "d": NULL},
        "minProperties": 1,
        "maxProperties": 2,
        "additionalProperties": False,
    },
    "few of any": {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2},
    "one of the two": {
        "type": "object",
        "properties": {"a": INTEGER, "b": INTEGER},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        "additionalProperties": False,
    },
    "required, not listed": {
        "type": "object",
        "required": ["x", "y"],
        "properties": {"y": INTEGER},
    },
    "names": {
        "type": "object",
        "properties": {"a b": INTEGER, 'q"': INTEGER, "n\n": INTEGER, "\u00e9\U0001f600": INTEGER},
        "patternProperties": {"^x": STRING, "y$": {"maxLength": 3}},
        "additionalProperties": BOOLEAN,
    },
    "two hundred properties": closed({f"property_{i}": INTEGER for i in range(200)}),
    "two hundred optional ones": {
        "type": "object",
        "properties": {f"property_{i}": BOOLEAN for i in range(200)},
        "additionalProperties": False,
    },
    "two hundred words": {"enum": [f"word {i * i}" for i in range(200)]},
    "draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 9,
    },
    "mutual recursion": {
        "$ref": "#/$defs/folder",
        "$defs": {
            "folder": closed({"name": STRING, "files": {"items": {"$ref": "#/$defs/file"}}}),
            "file": {"anyOf": [STRING, {"$ref": "#/$defs/folder"}]},
        },
    },
    "unevaluated items": {
        "type": "array",
        "allOf": [{"prefixItems": [STRING, INTEGER]}],
        "unevaluatedItems": BOOLEAN,
    },
}
