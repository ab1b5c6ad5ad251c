"""`inferno bench serve` against servers, ours among them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from typer.testing import CliRunner, Result

from inferno.cli.app import app
from inferno.client.process import ProcessClient
from inferno.client.scripted import Answer, Script, ScriptedClient
from inferno.demo import MODEL_FOLDERS
from inferno.options import EngineOptions
from inferno.server.api_keys import read_keys
from tests.bench.servers import Reply, Server, serving
from tests.server.hosting import Host, hosting

FEW = ["--num-requests", "6", "--concurrency", "2", "--prompt-tokens", "5", "--max-tokens", "8"]


def run(url: str, *arguments: str) -> Result:
    given = ["bench", "serve", "--base-url", url, "--model", "demo", *arguments]
    return CliRunner().invoke(app, given)


def url_of(host: Host) -> str:
    return str(host.http.base_url).rstrip("/")


@pytest.fixture(scope="module")
def scripted() -> Iterator[Host]:
    answer = Answer(token_ids=(300, 301), is_endless=True, first_delay=0.05, delay=0.01)
    script = Script(answers=(answer,), vocab_size=2048, max_model_len=1024)
    with hosting(lambda: ScriptedClient(script)) as host:
        yield host


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
@pytest.mark.parametrize(
    ("endpoint", "route"),
    [("completions", "/v1/completions"), ("chat", "/v1/chat/completions")],
)
def test_the_base_url_is_as_clients_take_it(path: str, endpoint: str, route: str) -> None:
    with answering() as server:
        result = run(server.url + path, "--endpoint", endpoint, "--num-requests", "1")
        assert result.exit_code == 0, result.output
        assert set(server.paths) == {route}


def answering() -> AbstractContextManager[Server]:
    async def answer(reply: Reply, _: int) -> None:
        reply.begin()
        await asyncio.sleep(0.01)
        reply.text("a")
        reply.end()

    return serving(answer)


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_our_server_is_measured(scripted: Host, endpoint: str) -> None:
    result = run(url_of(scripted), *FEW, "--endpoint", endpoint, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["measured"]
    assert (found["num_completed"], found["num_failed"]) == (6, 0)
    assert found["output_tokens"] == 6 * 8
    assert 0.045 < found["first_token"]["p50"] < 0.5
    assert 0.005 < found["between_tokens"]["p50"] < 0.1
    assert found["total"]["p50"] > found["first_token"]["p50"] + 0.05


def test_token_ids_are_counted_by_the_server(scripted: Host) -> None:
    how = ["--vocab-size", "2048", "--request-rate", "50", "--ignore-eos", "--json"]
    result = run(url_of(scripted), *FEW[:2], *FEW[4:], *how)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["measured"]["prompt_tokens"] == 6 * 5
    assert found["request_rate"] == 50


def test_a_key_opens_the_server() -> None:
    script = Script(vocab_size=2048, max_model_len=1024)
    keys = read_keys(["secret"], None, {})
    with hosting(lambda: ScriptedClient(script), api_keys=keys) as host:
        url = url_of(host)
        refused = run(url, *FEW)
        assert refused.exit_code == 1
        assert "did not answer a first request: status 401" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert run(url, *FEW, "--api-key", "secret").exit_code == 0


def test_the_table_is_plain_where_piped(scripted: Host) -> None:
    result = run(url_of(scripted), *FEW, "--ttft-slo", "5000", "--itl-slo", "0.001")
    assert result.exit_code == 0, result.output
    for said in ("first token", "between tokens", "p99", "goodput   0.00 requests/s: 0 of 6"):
        assert said in result.stdout
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--concurrency", "2", "--request-rate", "1"], "error: --concurrency and --request-rate"),
        (["--vocab-size", "9", "--endpoint", "chat"], "error: --vocab-size goes with --endpoint"),
        (["--request-rate", "0"], "error: --request-rate must be a number above 0 and up to"),
        (["--request-rate", "nan"], "error: --request-rate must be a number above 0"),
        (["--ttft-slo", "-1"], "error: --ttft-slo must be a number above 0"),
        (["--itl-slo", "inf"], "error: --itl-slo must be a number above 0"),
        (["--api-key", "a b"], "error: --api-key must be visible ASCII"),
        (["--api-key", "a\r\nX: y"], "error: --api-key must be visible ASCII"),
        (["--base-url", "ftp://a"], "error: --base-url must be an http:// or https:// URL"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments: list[str], said: str) -> None:
    result = run("http://127.0.0.1:9", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) == 1


def test_a_server_that_is_not_there_is_said_in_one_line() -> None:
    result = run("http://127.0.0.1:9")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: 127.0.0.1:9 did not answer a first request: ")
    assert len(result.stderr.splitlines()) == 1


def test_a_load_that_fails_whole_is_told_and_has_exit_code_1() -> None:
    async def only_once(reply: Reply, number: int) -> None:
        reply.begin(200 if number == 1 else 503)
        if number == 1:
            reply.end()
        else:
            reply.writer.write(b"0\r\n\r\n")

    with serving(only_once) as server:
        result = run(server.url, *FEW)
    assert result.exit_code == 1
    assert "6 x status 503" in result.stdout


@pytest.mark.slow
def test_the_demo_model_is_measured() -> None:
    options = EngineOptions(model=MODEL_FOLDERS["demo"], threads=1)
    with hosting(lambda: ProcessClient(options)) as host:
        how = ["--vocab-size", "2048", "--ignore-eos", "--json"]
        result = run(url_of(host), *FEW, *how)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["measured"]
    assert (found["num_failed"], found["output_tokens"]) == (0, 6 * 8)
    assert found["prompt_tokens"] == 6 * 5


def test_the_command_brings_no_torch() -> None:
    program = "import sys, inferno.cli.bench_serve; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
