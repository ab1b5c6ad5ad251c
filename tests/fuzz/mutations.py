"""Mutations of a model's files: bytes, and lies about each part of a format."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from tests.fuzz.gguf_parts import ARRAY, SIZES, STRING, Described, Entry, take_apart, text

NUMBERS = (
    *(0, 1, 2, 3, 7, 31, 32, 33, 255, 256, 300, 2**15, 2**16 - 1, 2**16, 2**20, 2**24, 2**31 - 1),
    *(2**31, 2**32 - 1, 2**32, 2**48, 2**53 + 1, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 32),
    *(2**64 - 1, -1, -2, -(2**31), -(2**63)),
)
_FLOATS = (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-45, 3e38, -1.0, 1e6)
_TEXTS = (
    *(b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"{}", b"{}{}", b"%s%n"),
    *(b"../../x", b"\x1b]0;title\x07", b"a b", b" ", b"x" * 70_000, "é".encode() * 300, b"\n\r\t"),
    *("\u2028\ufeff\u0000".encode(), "😀".encode(), b"<s>", b"</s>", b"llama", b"gpt2"),
)
_NAMES = (
    *(b"{}.weight", b"{}{}", b"{0.x}", b"blk.0.ffn_gate_exps.weight", b"blk.0.ffn_up_exps.weight"),
    *(b"blk.9999.attn_q.weight", b"rope_freqs.weight", b"output.weight", b"token_embd.weight"),
    *(
        b"blk.0.attn_q.weight",
        b"blk.0.attn_k.bias",
        b"blk.0.attn_q.scales",
        b"blk.-1.attn_q.weight",
    ),
)
_KEYS = (
    *(b"general.alignment", b"general.architecture", b"general.type", b"split.no", b"split.count"),
    *(b"tokenizer.ggml.tokens", b"tokenizer.ggml.scores", b"tokenizer.ggml.token_type"),
    *(b"tokenizer.ggml.merges", b"tokenizer.ggml.pre", b"tokenizer.ggml.model"),
    *(b"tokenizer.chat_template", b"tokenizer.chat_template.x", b"tokenizer.ggml.eos_token_id"),
    *(b"llama.rope.scaling.type", b"llama.rope.scaling.factor", b"llama.vocab_size", b"split.x"),
    *(b"general.sampling.temp", b"general.sampling.top_k", b"tokenizer.ggml.add_bos_token"),
)

# What JSON may hold, or may not, in the place of a value: bytes that are put there as they are.
_VALUES = (
    *(b"null", b"true", b"0", b"1", b"-1", b"0.5", b"-0", b"1e999", b"-1e999", b"NaN", b"Infinity"),
    *(b"2147483648", b"4294967295", b"9223372036854775808", b"-9223372036854775809", b"1e308"),
    *(
        b"9" * 5000,
        b"1" * 400,
        b'""',
        b'"x"',
        b'"\\u0000"',
        b'"\\ud800"',
        b'"\xff"',
        b'"{}"',
        b"[]",
    ),
    *(b"{}", b"[1]", b"[[]]", b"[null]", b'[""]', b'{"a": 1}', b'{"a": 1, "a": 2}', b'{"": {}}'),
    *(b"[" * 100_000 + b"]" * 100_000, b"[" * 900 + b"]" * 900, b'{"a":' * 500 + b"1" + b"}" * 500),
    *(b'"' + b"x" * 300_000 + b'"', '"😀"'.encode() * 1, b'"\\u001b]0;x\\u0007"', b"[0, 1, 2, 3]"),
    *(b'"../../x"', b'"/etc/passwd"', b'"model.safetensors"', b'"F32"', b'"BF16"', b'"U8"', b"0x1"),
    *(
        b'"(a+)+$"',
        b'{"Regex": "(a|a)*b"}',
        b'{"String": ""}',
        b'{"type": "Sequence"}',
        b"01",
        b"'x'",
    ),
)
_JINJA = (
    *("{{ 1/0 }}", "{% for a in range(10**9) %}x{% endfor %}", "{{ ''.__class__.__mro__ }}"),
    *("{% if %}", "{{ messages[99].x.y }}", "{% raw %}", "{{ 'x' * 10**9 }}", "\x00", "{#", "{{{{"),
    *("{% include '/etc/passwd' %}", "{{ raise_exception('x') }}", "{% set a = namespace() %}"),
)
_MARK = "\ue000"  # stands where raw bytes go


def mutated(
    files: Mapping[str, bytes], others: Sequence[bytes], random: Random
) -> tuple[dict[str, bytes], str]:
    """Return the files with a few mutations, mostly of one of them, and what was done.

    others  contents of other models, to splice in.
    """
    changed = dict(files)
    said = []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        name = random.choice(sorted(changed))
        changed[name], what = _mutated_file(name, changed[name], others, random)
        said.append(f"{name}: {what}")
        if random.random() < 0.02:
            del changed[name]
            said[-1] += ", removed"
            if not changed:
                break
    return changed, "; ".join(said)


def _mutated_file(
    name: str, content: bytes, others: Sequence[bytes], random: Random
) -> tuple[bytes, str]:
    kind = name.rpartition(".")[2]
    lies: dict[str, Callable[[bytes, Random], tuple[bytes, str]]] = {
        "gguf": _lie_in_gguf,
        "json": _lie_in_json,
        "safetensors": _lie_in_safetensors,
        "jinja": _lie_in_template,
    }
    if kind in lies and random.random() < 0.7:
        try:
            return lies[kind](content, random)
        except (ValueError, LookupError, TypeError, struct.error, RecursionError):
            pass  # it was mutated before, so that it can't be taken apart any more
    return _changed_bytes(content, others, random)


def _changed_bytes(content: bytes, others: Sequence[bytes], random: Random) -> tuple[bytes, str]:
    """Return bytes that are flipped, cut, spliced, or have a number in their midst."""
    raw = bytearray(content)
    at = _place(raw, random)
    match random.randrange(7):
        case 0:
            for _ in range(random.choice((1, 2, 8))):
                if raw:
                    raw[_place(raw, random)] ^= 1 << random.randrange(8)
            return bytes(raw), "bits flipped"
        case 1:
            return bytes(raw[:at]), f"cut at {at}"
        case 2:
            other = random.choice(others)
            start = _place(other, random)
            piece = other[start : start + random.choice((1, 8, 64, 1000))]
            return bytes(raw[:at] + piece + raw[at:]), f"spliced at {at}"
        case 3:
            end = at + random.choice((1, 4, 8, 100))
            return bytes(raw[:at] + raw[end:]), f"without {at} to {end}"
        case 4:
            size = random.choice((1, 2, 4, 8))
            number = random.choice(NUMBERS)
            raw[at : at + size] = (number % 256**size).to_bytes(size, "little")
            return bytes(raw), f"{number} of {size} bytes at {at}"
        case 5:
            end = _place(raw, random)
            return bytes(raw[:end] + raw[at:]), f"{at} on after {end}"
    return bytes(raw) + random.choice(_TEXTS), "more at the end"


def _place(raw: bytes | bytearray, random: Random) -> int:
    """Return a place in it, most often in the header."""
    most = len(raw) if random.random() < 0.3 else min(len(raw), 3000)
    return random.randrange(max(1, most))


def _lie_in_gguf(content: bytes, random: Random) -> tuple[bytes, str]:
    parts = take_apart(content)
    said = ""
    for _ in range(random.choice((1, 1, 2))):
        where = random.random()
        if where < 0.45 and parts.entries:
            said += _lie_in_entries(parts.entries, random)
        elif where < 0.85 and parts.tensors:
            said += _lie_in_tensors(parts.tensors, random)
        else:
            name = random.choice(("num_tensors", "num_entries", "version", "alignment"))
            value = random.choice((1, 64, 4096) if name == "alignment" else NUMBERS)
            limit = 2**32 if name == "version" else 2**64
            setattr(parts, name, value % limit)
            said += f" {name}={value}"
    return parts.content(), said


def _lie_in_entries(entries: list[Entry], random: Random) -> str:
    index = random.randrange(len(entries))
    one = copy.copy(entries[index])
    entries[index] = one
    match random.randrange(9):
        case 0:
            del entries[index]
            return f" without {one.key!r}"
        case 1:
            entries.insert(random.randrange(len(entries)), copy.copy(one))
            return f" {one.key!r} twice"
        case 2:
            one.type = random.choice((*range(14), 255, -1, 2**31))
            return f" {one.key!r} of type {one.type}"
        case 3:
            one.key = random.choice((*_KEYS, *_TEXTS))
            return f" key {one.key[:40]!r}"
        case 4:
            one.type, one.value = _scalar(random)
            return f" {one.key!r} a scalar of {one.type}"
        case 5:
            one.type, one.value = _array(random)
            return f" {one.key!r} an array"
        case 6 if one.type == ARRAY:
            return _lie_in_array(one, random)
        case 7:
            kind, value = random.choice((_scalar, _array))(random)
            entries.append(Entry(random.choice(_KEYS), kind, value))
            return f" another {entries[-1].key!r}"
    if one.type in SIZES:
        one.value = _number(one.type, random)
    else:
        one.type, one.value = STRING, text(random.choice(_TEXTS))
    return f" {one.key!r} of another value"


def _lie_in_array(one: Entry, random: Random) -> str:
    kind, count = struct.unpack_from("<IQ", one.value)
    match random.randrange(4):
        case 0:
            count = random.choice(NUMBERS) % 2**64
            one.value = struct.pack("<IQ", kind, count) + one.value[12:]
            return f" {one.key!r} of {count} values"
        case 1:
            other = random.choice(list(range(14)))
            one.value = struct.pack("<IQ", other, count) + one.value[12:]
            return f" {one.key!r} an array of type {other}"
        case 2 if kind in SIZES:
            at = 12 + random.randrange(max(1, count)) * SIZES[kind]
            value = _number(kind, random)
            one.value = one.value[:at] + value + one.value[at + SIZES[kind] :]
            return f" a value of {one.key!r}"
        case _ if kind == STRING:
            values = _texts(one.value)
            values[random.randrange(len(values))] = random.choice((*_TEXTS, *values))
            one.value = struct.pack("<IQ", kind, len(values)) + b"".join(map(text, values))
            return f" a text of {one.key!r}"
    one.value = struct.pack("<IQ", ARRAY, 1) * random.choice((1, 2, 1000)) + one.value
    return f" {one.key!r} of nested arrays"


def _texts(value: bytes) -> list[bytes]:
    _, count = struct.unpack_from("<IQ", value)
    at, found = 12, []
    for _ in range(count):
        (length,) = struct.unpack_from("<Q", value, at)
        found.append(value[at + 8 : at + 8 + length])
        at += 8 + length
    return found


def _scalar(random: Random) -> tuple[int, bytes]:
    kind = random.choice((*SIZES, STRING))
    return kind, text(random.choice(_TEXTS)) if kind == STRING else _number(kind, random)


def _array(random: Random) -> tuple[int, bytes]:
    kind, value = _scalar(random)
    count = random.choice((0, 1, 3, 1000))
    return ARRAY, struct.pack("<IQ", kind, count) + value * count


def _number(kind: int, random: Random) -> bytes:
    if kind in (6, 12):
        return struct.pack("<f" if kind == 6 else "<d", random.choice(_FLOATS))
    size = SIZES[kind]
    number: int = random.choice(NUMBERS) % 256**size
    return number.to_bytes(size, "little")


def _lie_in_tensors(tensors: list[Described], random: Random) -> str:
    index = random.randrange(len(tensors))
    one = copy.deepcopy(tensors[index])
    tensors[index] = one
    match random.randrange(8):
        case 0:
            del tensors[index]
            return f" without {one.name!r}"
        case 1:
            tensors.insert(random.randrange(len(tensors)), copy.deepcopy(one))
            return f" {one.name!r} twice"
        case 2:
            one.name = random.choice((*_NAMES, *_TEXTS, random.choice(tensors).name))
            return f" a tensor {one.name[:40]!r}"
        case 3:
            one.num_dims = random.choice((0, 1, 2, 3, 4, 5, 8, 2**31, 2**32 - 1))
            return f" {one.name!r} of {one.num_dims} axes"
        case 4 if one.sizes:
            one.sizes[random.randrange(len(one.sizes))] = random.choice(NUMBERS)
            return f" {one.name!r} of {one.sizes}"
        case 5:
            one.type = random.choice((*range(45), 255, -1, 2**31))
            return f" {one.name!r} of type {one.type}"
        case 6:
            one.offset = random.choice((*NUMBERS, one.offset + 1, one.offset - 32, one.offset + 32))
            return f" {one.name!r} at {one.offset}"
    sizes = [random.choice((0, 1, 2, 32, 256, 2**32, 2**62)) for _ in range(random.randrange(6))]
    named = random.choice((*_NAMES, b"x"))
    tensors.append(Described(named, sizes, random.choice((0, 1, 2, 8, 12, 24, 30, 39)), one.offset))
    return f" another tensor {named!r} of {sizes}"


def _lie_in_safetensors(content: bytes, random: Random) -> tuple[bytes, str]:
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    if random.random() < 0.1:
        length = random.choice((*NUMBERS, length - 1, length + 1)) % 2**64
        return length.to_bytes(8, "little") + header + data, f"a header of {length} bytes"
    header, said = _lie_in_json(header, random)
    return len(header).to_bytes(8, "little") + header + data, said


def _lie_in_json(content: bytes, random: Random) -> tuple[bytes, str]:
    """Return the document with a value, or a key, that is another one, missing, or there twice."""
    document = json.loads(content)
    places = [path for path in _places(document) if path]
    if not places or random.random() < 0.05:
        return random.choice(_VALUES), "another document"
    path = random.choice(places)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    last = path[-1]
    raw = random.choice(_VALUES)
    match random.randrange(6):
        case 0:
            del parent[last]
            return json.dumps(document).encode(), f"without {path}"
        case 1 if isinstance(parent, dict):
            parent[_MARK] = 0
            double = json.dumps(last).encode() + b": " + raw
            marked = json.dumps(_MARK).encode() + b": 0"
            return json.dumps(document).encode().replace(marked, double), f"{path} twice"
        case 2 if isinstance(parent, dict):
            parent[random.choice(("", "__metadata__", "x" * 2000, "\x00", last + " "))] = parent[
                last
            ]
            return json.dumps(document).encode(), f"{path} under another key"
        case 3:
            parent[last] = _sibling(document, places, random)
            return json.dumps(document).encode(), f"{path} is another's value"
        case 4 if isinstance(parent[last], int | float):
            parent[last] = random.choice((*NUMBERS, *(parent[last] + step for step in (-1, 1))))
            return json.dumps(document).encode(), f"{path} is {parent[last]}"
    parent[last] = _MARK
    written = json.dumps(document).encode().replace(json.dumps(_MARK).encode(), raw)
    return written, f"{path} is {raw[:60]!r}"


def _sibling(document: Any, places: Sequence[tuple[Any, ...]], random: Random) -> Any:
    found = document
    for key in random.choice(places):
        found = found[key]
    return copy.deepcopy(found)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the places of all values, of long lists and objects only some."""
    found = [path]
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    for key, inner in items[:30] + items[30:][-3:]:
        found += _places(inner, (*path, key))
    return found


def _lie_in_template(content: bytes, random: Random) -> tuple[bytes, str]:
    at, piece = _place(content, random), random.choice(_JINJA)
    return content[:at] + piece.encode() + content[at:], f"{piece!r} at {at}"
