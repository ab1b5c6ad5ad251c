"""Tests of inferno.text.renderer and its child: hostile templates end as errors, soon and alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from inferno.errors import InvalidRequest, TemplateError
from inferno.text import renderer as renderer_module
from inferno.text.render_child import MAX_MEMORY
from inferno.text.renderer import TemplateRenderer

BOMBS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 'a' * 10**10 }}",
    "{{ 'a' * 10**9 }}",
    "{{ n * 9**99999999 }}",
    "{{ 'x'.ljust(10**10) }}",
    "{{ 'x' | center(10**10) }}",
    "{{ '%01000000000d' | format(1) }}",
    "{{ [1] * 10**9 }}",
    "{{ {1: 2} | tojson(indent=10**9) }}",
    "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "{% set ns = namespace(x='ab') %}"
    "{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{% for i in range(99999) %}{{ 'a' * 99 }}{% endfor %}",
    "{{ lipsum(n=100000) }}",
    "{{ range(10**9) | list }}",
    "{{" + "(" * 100_000,
    "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
    "{% if x %}" * 5000,
]
ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ namespace.__init__ }}",
    "{{ self.__init__.__globals__.__builtins__.__import__('os').system('touch pwned') }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__globals__['sys'] }}",
    "{{ ''|attr('__class__') }}",
    "{% set f = '{0.__class__.__mro__}'.format %}{{ f('x') }}",
    "{{ ('{0.__class__}'|attr('format'))('x') }}",
    "{{ dict.mro() }}",
    "{{ messages.append(1) }}",
    "{{ messages.clear() }}",
    "{% set ns = namespace(__class__=1) %}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
]


@pytest.fixture(scope="module")
def renderer() -> Iterator[TemplateRenderer]:
    renderer = TemplateRenderer(cpu_seconds=0.5)
    yield renderer
    renderer.close()


@pytest.mark.parametrize("template", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_is_an_error_in_time_and_the_next_rendering_works(
    renderer: TemplateRenderer, template: str
) -> None:
    start = time.monotonic()
    with pytest.raises(TemplateError):
        renderer.render(template, {"n": 7})
    assert time.monotonic() - start < 5  # a second when the machine is idle
    assert renderer.render("{{ n }}", {"n": 1}) == "1"


GREEDY = """
import resource
from inferno.errors import TemplateError
from inferno.text.renderer import TemplateRenderer
renderer = TemplateRenderer(cpu_seconds=5)
try:
    renderer.render("{{ 'a' * 2 * 10**9 }}", {})
except TemplateError:
    renderer.close()
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's memory")
def test_a_child_can_not_use_more_memory_than_allowed() -> None:
    done = subprocess.run([sys.executable, "-c", GREEDY], capture_output=True, check=True)
    assert int(done.stdout) * 1024 < MAX_MEMORY


@pytest.mark.parametrize("template", ESCAPES)
def test_a_way_out_of_the_sandbox_is_an_error(
    renderer: TemplateRenderer, template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TemplateError):
        renderer.render(template, {"messages": []})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("template", ["{% if %}", "{{ 'a' + 1 }}", "{{ a.b.c }}", "{{ 1 / 0 }}"])
def test_a_template_that_fails_is_an_error_in_its_own_words(
    renderer: TemplateRenderer, template: str
) -> None:
    with pytest.raises(TemplateError, match="Error: "):
        renderer.render(template, {})


def test_a_template_that_refuses_the_messages_is_quoted(renderer: TemplateRenderer) -> None:
    with pytest.raises(InvalidRequest, match="roles must alternate") as refusal:
        renderer.render("{{ raise_exception('roles must alternate') }}", {})
    assert refusal.value.param == "messages"


TEMPLATES = [
    "{% for m in messages %}\n  {% if loop.first %}\n{{ m.a }}\n  {% endif %}\n{% endfor %}\n",
    "{{ messages | tojson }}{{ messages | tojson(indent=2) }}",
    "{{ messages | tojson(ensure_ascii=True) }}{{ messages | tojson(sort_keys=True) }}",
    "{{ messages | tojson(separators=(',', ':')) }}",
    "{% for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m }}{% endfor %}",
    "{% for m in messages %}{% generation %}{{ m.a }}{% endgeneration %}{% endfor %}",
    "{% set ns = namespace(a=1) %}{% for m in messages %}{% set ns.a = 9 %}{% endfor %}{{ ns.a }}",
    "{{ missing }}{{ messages[5] }}|{{ messages[0].missing is defined }}",
    "{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}",
    "{{ dict(a=1) }}{{ range(3) | list }}{{ '<b>' }}",
    "{%- set x = 1 -%}\n\n{{ x }}\n\n",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_render_as_in_transformers(renderer: TemplateRenderer, template: str) -> None:
    messages = [{"a": "<é>'\u2028😀", "b": None}, {"a": 2, "c": [1.5, True]}]
    [expected], _ = render_jinja_template([messages], chat_template=template)
    variables = {
        "messages": messages,
        "tools": None,
        "documents": None,
        "add_generation_prompt": False,
    }
    assert renderer.render(template, variables) == expected


def test_the_date_is_todays(renderer: TemplateRenderer) -> None:
    before = datetime.now()
    rendered = renderer.render("{{ strftime_now('%Y-%m-%d %H:%M') }}", {})
    assert f"{before:%Y-%m-%d %H:%M}" <= rendered <= f"{datetime.now():%Y-%m-%d %H:%M}"


def test_marks_survive_json_in_ascii(renderer: TemplateRenderer) -> None:
    rendered = renderer.render("{{ x | tojson(ensure_ascii=True) }}", {"x": "<\ufdd0s>é\\ufdd0"})
    assert rendered == '"<\ufdd0s>\\u00e9\\\\ufdd0"'


def test_a_prompt_may_be_as_long_as_allowed_and_no_longer() -> None:
    renderer = TemplateRenderer(max_chars=100)
    assert renderer.render("{{ '😀' * 100 }}", {}) == "😀" * 100
    with pytest.raises(TemplateError, match="longer than 100"):
        renderer.render("{{ 'a' * 101 }}", {})
    renderer.close()


def test_a_child_that_was_killed_is_replaced() -> None:
    renderer = TemplateRenderer()
    assert renderer.render("a", {}) == "a"
    child = renderer._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert renderer.render("b", {}) == "b"
    renderer.close()


def test_a_child_without_processor_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer_module, "WALL_SECONDS", 0.2)
    renderer = TemplateRenderer()
    with pytest.raises(TemplateError):
        renderer.render("{% for i in range(99999) %}{{ lipsum() }}{% endfor %}", {})
    renderer.close()


def test_close_ends_the_child_and_rendering_starts_another() -> None:
    renderer = TemplateRenderer()
    renderer.render("a", {})
    child = renderer._child
    assert child is not None
    renderer.close()
    assert child.returncode is not None
    assert renderer.render("b", {}) == "b"
    renderer.close()
    renderer.close()


def test_threads_may_render_at_once(renderer: TemplateRenderer) -> None:
    rendered: dict[int, str] = {}

    def render(number: int) -> None:
        rendered[number] = renderer.render("{{ n }}", {"n": number})

    threads = [threading.Thread(target=render, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rendered == {number: str(number) for number in range(8)}


PARENT = """
import os, signal, sys
from inferno.text.renderer import TemplateRenderer
renderer = TemplateRenderer()
renderer.render("a", {})
print(renderer._child.pid, flush=True)
{ending}
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    "ending", ["", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"]
)
def test_the_child_does_not_outlive_its_parent(ending: str) -> None:
    script = PARENT.replace("{ending}", ending)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)


def test_the_child_is_out_of_reach_of_the_terminals_ctrl_c() -> None:
    renderer = TemplateRenderer()
    renderer.render("a", {})
    assert renderer._child is not None
    assert os.getpgid(renderer._child.pid) != os.getpgid(0)
    renderer.close()


def test_the_child_imports_nothing_heavy() -> None:
    child = Path(renderer_module.__file__).with_name("render_child.py")
    script = f"import runpy, sys; runpy.run_path({str(child)!r}); print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert not {"torch", "numpy", "tokenizers", "inferno"} & set(output.decode().split())


def test_nothing_is_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    renderer = TemplateRenderer()
    assert renderer.render("a", {}) == "a"
    renderer.close()
