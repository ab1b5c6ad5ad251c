"""After os.fork the child gets a clear error or an engine of its own, and always exits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inferno import AsyncLLM
from inferno.client.process import ProcessClient
from inferno.errors import EngineDied
from inferno.requests import Request, SamplingParams
from tests.client.test_process import LOG, OPTIONS

# Each scenario runs in a forked child, which then ends as any program does.
PROGRAM = '''
from inferno.torch_start import defer_tracing
defer_tracing()  # which takes much of the start
import asyncio, gc, multiprocessing, os, signal, subprocess, sys, threading, time
from inferno import LLM, AsyncLLM, SamplingParams
from inferno.errors import EngineDied

NUM_THREADS = 2
GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=None, ignore_eos=True)
HELLO = [{"role": "user", "content": "Hello"}]

def make():
    return LLM("demo", threads=NUM_THREADS, num_blocks=256)

llm = make()
expected = llm.generate("Once upon", GREEDY)[0].text
llm.chat(HELLO, GREEDY)
begun = llm.stream("Once upon", LONG)
next(begun)
waiting = llm.as_completed(["Once upon", "A cat"], LONG)

def refused(call):
    try:
        call()
    except EngineDied as problem:
        assert "fork" in str(problem) and "make a new one here" in str(problem), problem
    else:
        raise AssertionError("it worked")

def calls():
    refused(lambda: llm.generate("a", GREEDY))
    refused(lambda: list(llm.stream("a", GREEDY)))
    refused(lambda: llm.chat(HELLO, GREEDY))
    refused(lambda: list(llm.stream_chat(HELLO, GREEDY)))
    refused(lambda: llm.encode_chat(HELLO))
    refused(lambda: llm.logits([1, 2]))

def goes_on():
    refused(lambda: next(begun))
    refused(lambda: next(waiting))

def closes():
    llm.close()
    with llm:
        pass
    begun.close()

def collects():
    global llm, begun, waiting
    llm = begun = waiting = None
    gc.collect()

def raises():
    raise ZeroDivisionError

def leaves_at_once():
    os._exit(0)

def asks_others():
    assert subprocess.run([sys.executable, "-c", "print(3)"], capture_output=True).stdout == b"3\\n"

def starts_anew():
    calls()
    with make() as mine:
        assert mine.generate("Once upon", GREEDY)[0].text == expected

def starts_anew_and_forgets():
    global mine
    mine = make()
    assert mine.generate("Once upon", GREEDY)[0].text == expected

def starts_a_loop():
    async def main():
        async with AsyncLLM("demo", threads=NUM_THREADS, num_blocks=256) as mine:
            [done] = await mine.generate("Once upon", GREEDY)
            assert done.text == expected
    asyncio.run(main())

def fork(scenario):
    """Run it in a child, as it would go on after os.fork."""
    pid = os.fork()
    if not pid:
        scenario()
        sys.exit(0)  # the finalizers run, and the interpreter ends
    return pid

def ends_well(pid, scenario, expects=0):
    signal.alarm(300)  # which ends us, and so the test, if it hangs
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == expects, (scenario, status)

def forked(scenario, expects=0):
    ends_well(fork(scenario), scenario, expects)

def multiprocessed(scenario):
    child = multiprocessing.get_context("fork").Process(target=scenario)
    child.start()
    child.join(300)
    assert child.exitcode == 0, (scenario, child.exitcode)

def meanwhile(work, scenario, times):
    """Fork while another thread is at it, each time at another place of its work."""
    has_begun, is_over = threading.Event(), threading.Event()
    def loop():
        while not is_over.is_set():
            has_begun.set()
            work()
    thread = threading.Thread(target=loop)
    thread.start()
    pids = []
    for number in range(times):
        has_begun.clear()
        has_begun.wait()
        time.sleep(0.002 * number)
        pids.append(fork(scenario))
    is_over.set()  # only now, for the children take long to end
    thread.join()
    for pid in pids:
        ends_well(pid, scenario)

old = [calls, goes_on, closes, collects, leaves_at_once, asks_others]
new = [starts_anew, starts_anew_and_forgets, starts_a_loop]
for scenario in old + new:
    forked(scenario)
for scenario in [calls, goes_on, closes, starts_anew_and_forgets]:
    multiprocessed(scenario)
forked(raises, expects=1)
meanwhile(lambda: llm.generate(["a", "b"], GREEDY), starts_anew, 4)
meanwhile(lambda: make().close(), starts_anew, 4)
assert list(begun)[-1].completion.usage.completion_tokens > 100  # the parent's go on
assert len(list(waiting)) == 2
assert llm.generate("Once upon", GREEDY)[0].text == expected
llm.close()
print("well")
'''


@pytest.mark.slow
def test_a_forked_child_gets_an_error_or_a_new_engine_and_exits(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "well"
    assert ran.stderr.count("Traceback") == 1, "one child raised"
    assert "destroyed" not in ran.stderr


def test_an_engine_in_a_process_of_its_own_stays_its_parents() -> None:
    request = Request(request_id="a", prompt_token_ids=(5,), params=SamplingParams(max_tokens=9))

    async def main() -> None:
        client = ProcessClient(OPTIONS, log=LOG)
        await client.wait_ready()
        pid = os.fork()
        if not pid:
            code = 1
            try:
                with pytest.raises(EngineDied, match="forked"):
                    await anext(client.generate(request))
                await client.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        events = [event async for event in client.generate(request)]
        assert events[-1].finish_reason is not None
        await client.close()

    asyncio.run(main())


def test_a_child_of_a_running_event_loop_is_told_to_make_a_model_of_its_own() -> None:
    """In such a child no event loop runs, by asyncio's account."""
    greedy = SamplingParams(temperature=0.0, max_tokens=4)

    async def main() -> None:
        async with AsyncLLM("demo", threads=1, num_blocks=256) as llm:
            begun = llm.stream("Once upon", greedy)
            await anext(begun)
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    for call in (llm.generate("a", greedy), anext(llm.stream("a")), anext(begun)):
                        with pytest.raises(EngineDied, match="make a new one here"):
                            await call
                    await llm.close()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert [chunk async for chunk in begun][-1].completion is not None

    asyncio.run(main())
