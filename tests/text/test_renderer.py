"""Tests of inferno.text.renderer and its child: hostile templates end as errors, soon and alone."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from inferno.errors import InvalidRequest, Overloaded, TemplateError
from inferno.limited.child import MAX_MEMORY
from inferno.limited.pool import NUM_CHILDREN
from inferno.text import renderer as renderer_module
from inferno.text.renderer import TemplateRenderer
from tests.patience import PATIENCE

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
    with pytest.raises(TemplateError):
        renderer.submit(template, {"n": 7}).result(timeout=PATIENCE)
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


def workers_of(renderer: TemplateRenderer) -> list[int]:
    """The processes that its children have forked."""
    children = [Path(f"/proc/{pid}/task/{pid}/children") for pid in renderer.pids]
    return [int(pid) for child in children for pid in child.read_text().split()]


def until(has_come: Callable[[], object], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not has_come():
        assert time.monotonic() < deadline, "it didn't come"
        time.sleep(0.005)


def test_a_child_that_was_killed_is_replaced() -> None:
    renderer = TemplateRenderer()
    assert renderer.render("a", {}) == "a"
    [child] = renderer.pids
    os.kill(child, signal.SIGKILL)
    until(lambda: not has_members(child))
    assert renderer.render("b", {}) == "b"
    assert renderer.pids != [child]
    renderer.close()


BUSY = "{% for i in range(99999) %}{% for j in range(n) %}{% endfor %}{% endfor %}"
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@only_linux
@pytest.mark.parametrize("victims", [lambda it: it.pids, workers_of])
def test_a_rendering_whose_child_is_killed_by_others_is_begun_again(
    victims: Callable[[TemplateRenderer], list[int]],
) -> None:
    renderer = TemplateRenderer(cpu_seconds=30)
    renderer.render("a", {})
    rendering = renderer.submit(BUSY + "{{ n }}", {"n": 8})
    until(lambda: len(victims(renderer)) == 2)  # the second is that of long renderings
    for pid in victims(renderer):
        os.kill(pid, signal.SIGKILL)
    assert rendering.result(timeout=PATIENCE) == "8"
    assert renderer.render("b", {}) == "b"
    renderer.close()


def test_a_child_without_processor_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer_module, "WALL_SECONDS", 0.2)
    monkeypatch.setattr(renderer_module, "LONG_WALL_SECONDS", 0.2)
    renderer = TemplateRenderer(cpu_seconds=60)
    with pytest.raises(TemplateError):
        renderer.render(BUSY, {"n": 99999})
    renderer.close()


def test_close_ends_the_children_and_rendering_starts_others() -> None:
    renderer = TemplateRenderer()
    renderer.render("a", {})
    children = renderer.pids
    assert children
    renderer.close()
    assert not any(map(is_running, children))
    assert renderer.render("b", {}) == "b"
    renderer.close()
    renderer.close()


def test_close_ends_what_is_under_way_and_what_waits() -> None:
    renderer = TemplateRenderer(cpu_seconds=60)
    renderings = [renderer.submit(BUSY, {"n": 99999}) for _ in range(9)]
    until(lambda: len(renderer.pids) > 2)
    renderer.close()
    for rendering in renderings:
        with pytest.raises(TemplateError, match="closed"):
            rendering.result(timeout=PATIENCE)


def test_short_renderings_do_not_wait_for_long_ones(renderer: TemplateRenderer) -> None:
    long = [renderer.submit(BUSY, {"n": 99999}) for _ in range(12)]
    short = [renderer.submit("{{ n }}", {"n": n}) for n in range(12)]
    assert [each.result(timeout=PATIENCE) for each in short] == [str(n) for n in range(12)]
    assert not all(each.done() for each in long)
    assert len(renderer.pids) <= 2 * NUM_CHILDREN
    with pytest.raises(TemplateError, match=r"more than 0\.5 seconds"):
        long[0].result(timeout=PATIENCE)
    for each in long:
        each.cancel()


def test_the_models_own_templates_go_before_others() -> None:
    own = "own {{ n }}"
    renderer = TemplateRenderer([own], cpu_seconds=5)
    others = [renderer.submit(BUSY, {"n": 99999}) for _ in range(12)]
    assert renderer.submit(own, {"n": 1}).result(timeout=PATIENCE) == "own 1"
    assert not any(each.done() for each in others)
    renderer.close()


def test_what_nobody_waits_for_any_more_is_not_begun(renderer: TemplateRenderer) -> None:
    long = [renderer.submit(BUSY, {"n": 99999}) for _ in range(20)]
    assert all(each.cancel() for each in long)
    assert renderer.render("a", {}) == "a"
    start = time.process_time()
    # Short enough for the renderer's half second on a machine that is many times slower.
    assert renderer.render("{% for i in range(n) %}{% endfor %}", {"n": 999}) == ""
    assert time.process_time() - start < 5


def test_more_than_may_wait_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer_module, "MAX_WAITING", 3)
    renderer = TemplateRenderer(cpu_seconds=60)
    with pytest.raises(Overloaded, match="3 conversations wait"):
        [renderer.submit(BUSY, {"n": 99999}) for _ in range(9)]
    renderer.close()


def test_what_nobody_waits_for_any_more_takes_nobodys_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renderer_module, "MAX_WAITING", 3)
    renderer = TemplateRenderer(cpu_seconds=60)
    under_way = [renderer.submit(BUSY, {"n": 99999}) for _ in range(2)]
    until(lambda: renderer.num_waiting == 0)
    for _ in range(9):
        renderer.submit(BUSY, {"n": 99999}).cancel()
    assert not any(each.done() for each in under_way)
    renderer.close()


def test_no_child_can_be_started_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    renderer = TemplateRenderer()
    with monkeypatch.context() as broken:
        broken.setattr(subprocess, "Popen", popen)
        with pytest.raises(Overloaded, match="Too many open files"):
            renderer.render("a", {})
    assert renderer.render("a", {}) == "a"
    renderer.close()


def test_a_child_that_can_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    renderer = TemplateRenderer()
    with pytest.raises(TemplateError, match="at its start with status 1"):
        renderer.render("a", {})
    renderer.close()


@only_linux
def test_children_see_no_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "sk-secret")
    renderer = TemplateRenderer()
    renderer.render("a", {})
    for pid in renderer.pids + workers_of(renderer):
        assert Path(f"/proc/{pid}/environ").read_bytes() == b""
        assert b"secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    renderer.close()


@only_linux
def test_a_worker_has_three_pipes_and_may_open_nothing() -> None:
    with open(os.devnull) as inheritable:
        os.set_inheritable(inheritable.fileno(), True)
        renderer = TemplateRenderer()
        renderer.render("a", {})
        [worker] = workers_of(renderer)
        assert sorted(os.listdir(f"/proc/{worker}/fd")) == ["0", "1", "2"]
    assert resource.prlimit(worker, resource.RLIMIT_NOFILE) == (3, 3)
    assert resource.prlimit(worker, resource.RLIMIT_NPROC) == (0, 0)
    assert resource.prlimit(worker, resource.RLIMIT_AS) == (MAX_MEMORY, MAX_MEMORY)
    assert "Seccomp:\t2" in Path(f"/proc/{worker}/status").read_text()
    renderer.close()


FILTERED = """
import os, signal, socket, sys
from inferno.limited.child import filter_system_calls, load_prctl
filter_system_calls(load_prctl())
for attempt in (
    lambda: open("/etc/hostname"),
    lambda: open("/tmp/x", "w"),
    lambda: os.stat("/etc"),
    lambda: socket.socket(),
    lambda: socket.socketpair(),
    lambda: os.fork(),
    lambda: os.execv("/bin/true", ["true"]),
    lambda: os.kill(os.getppid(), 0),
    lambda: os.pipe(),
    lambda: os.dup(1),
    lambda: os.nice(-1),
    lambda: open(f"/proc/{os.getppid()}/environ"),
):
    try:
        attempt()
    except PermissionError:
        print("refused")
sys.stdout.flush()
"""


@only_linux
def test_the_kernel_refuses_a_worker_files_sockets_and_processes() -> None:
    done = subprocess.run([sys.executable, "-c", FILTERED], capture_output=True, check=False)
    assert done.stdout.decode().split() == ["refused"] * 12, done.stderr.decode()


def test_a_fork_of_the_parent_renders_with_children_of_its_own(
    renderer: TemplateRenderer,
) -> None:
    assert renderer.render("a", {}) == "a"
    children = renderer.pids
    if (forked := os.fork()) == 0:
        is_right = renderer.render("b", {}) == "b" and not set(renderer.pids) & set(children)
        renderer.close()
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert renderer.pids == children
    assert renderer.render("c", {}) == "c"


LATE = [
    "{{ lipsum(n=1) | length > 9 }}",
    "{{ messages | pprint }}",
    "{{ 'a b c' | wordwrap(3) }}",
    "{{ 'a b' | urlencode }}{{ '\\u00e9\\N{BULLET}' }}{{ 'é'.encode('utf-8') }}",
    "{{ [1, 2] | random > 0 }}",
]


@pytest.mark.parametrize("template", LATE)
def test_what_jinja_imports_late_is_there(renderer: TemplateRenderer, template: str) -> None:
    [expected], _ = render_jinja_template([[{"a": 1}]], chat_template=template)
    assert renderer.render(template, {"messages": [{"a": 1}]}) == expected


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
import os, signal, sys, time
from inferno.text.renderer import TemplateRenderer
renderer = TemplateRenderer(cpu_seconds={seconds})
renderer.render("a", {})
if {is_busy}:
    renderer.submit({template!r}, {"n": 99999})
    while len(renderer.pids) < 2:  # the second is that of long renderings
        time.sleep(0.01)
    time.sleep(0.5)  # let it begin: were it still to start, it would end in any case
print(*renderer.pids, flush=True)
{ending}
"""


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize(
    "ending", ["", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"]
)
def test_no_child_outlives_its_parent(ending: str, is_busy: bool) -> None:
    # Where the kernel doesn't tell of the parent's end, a rendering goes on to its limit.
    seconds = 600 if sys.platform == "linux" else 2
    script = PARENT.replace("{ending}", ending).replace("{template!r}", repr(BUSY))
    script = script.replace("{seconds}", str(seconds)).replace("{is_busy}", str(is_busy))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    groups = [int(pid) for pid in done.stdout.split()]
    assert groups
    until(lambda: not any(map(has_members, groups)))


def has_members(group: int) -> bool:
    """Whether a process of this group runs: a child, or the worker that it has forked."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    if not Path("/proc/self/stat").exists():
        return True
    stats = [stat.read_text() for stat in Path("/proc").glob("[0-9]*/stat") if stat.exists()]
    fields = [stat.rpartition(")")[2].split() for stat in stats]
    return any(int(each[2]) == group and each[0] != "Z" for each in fields)


def test_the_children_are_out_of_reach_of_the_terminals_ctrl_c(renderer: TemplateRenderer) -> None:
    renderer.render("a", {})
    assert os.getpgid(0) not in map(os.getpgid, renderer.pids)


def test_the_child_imports_nothing_heavy() -> None:
    child = Path(renderer_module.__file__).with_name("render_child.py")
    script = f"import runpy, sys; runpy.run_path({str(child)!r}); print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    assert not {"torch", "numpy", "tokenizers", "msgspec"} & set(output.decode().split())


def test_nothing_is_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    renderer = TemplateRenderer()
    assert renderer.render("a", {}) == "a"
    renderer.close()
