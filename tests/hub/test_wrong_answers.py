"""One wrong answer, as proxies and portals give, costs nothing of what was fetched already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inferno.errors import DownloadError
from inferno.hub.client import HubClient
from inferno.hub.fetch import download, plan_download
from inferno.hub.manifest import Entry
from inferno.hub.store import Store
from tests.hub.loopback import COMMIT, WEIGHTS, Handler, Hub, reply_chunked, running
from tests.hub.test_resumed import FILES, breaking_off, fetch, with_etags

NAME = "a/model"
PAGE = b"<!doctype html><html>Please sign in to the guest network</html>".ljust(2000)
HERE = 900_000  # bytes of 1 MiB

Wrong = Callable[[Handler, bytes], None]


def part_range(total: int) -> Wrong:
    def answer(handler: Handler, content: bytes) -> None:
        where = f"bytes {handler.start()}-{len(content) - 1}/{total}"
        handler.reply(206, content[handler.start() :], {"content-range": where})

    return answer


def short_range(handler: Handler, content: bytes) -> None:
    where = f"bytes {handler.start()}-{len(content) - 1}/{len(content)}"
    handler.reply(206, PAGE, {"content-range": where})


def whole_that_breaks_off(handler: Handler, content: bytes) -> None:
    handler.reply(200, content[:1000], length=len(content))


def chunked_that_breaks_off(handler: Handler, content: bytes) -> None:
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n" % len(content) + content[:1000])
    handler.close_connection = True


WRONG: dict[str, Wrong] = {
    "a page": lambda handler, _: handler.reply(200, PAGE, {"content-type": "text/html"}),
    "a page of no told length": lambda handler, _: reply_chunked(handler, PAGE),
    "nothing": lambda handler, _: handler.reply(200, b""),
    "a part of no told place": lambda handler, content: handler.reply(206, content[-1000:]),
    "a part of another file": part_range(len(WEIGHTS) + 1),
    "a part that is shorter than it says": short_range,
    "several parts": lambda handler, _: handler.reply(
        206, b"--x\r\n\r\nab\r\n--x--", {"content-type": "multipart/byteranges; boundary=x"}
    ),
    "no such part": lambda handler, content: handler.reply(
        416, b"", {"content-range": f"bytes */{len(content)}"}
    ),
    "the whole, which breaks off": whole_that_breaks_off,
    "the whole, of no told length, which breaks off": chunked_that_breaks_off,
    "the beginning, of no told length": lambda handler, content: reply_chunked(
        handler, content[:1000]
    ),
}


def get(client: HubClient, store: Store) -> Entry:
    return download(client, store, plan_download(client, store, NAME))


def begun(store: Store) -> Path:
    part = store.partial_folder(NAME, COMMIT) / "model.safetensors.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(WEIGHTS[:HERE])
    return part


def answering(wrong: Wrong, times: int) -> Callable[[Handler, bytes], bool]:
    num_asked = 0

    def answer(handler: Handler, content: bytes) -> bool:
        nonlocal num_asked
        num_asked += content is WEIGHTS
        if content is not WEIGHTS or num_asked > times:
            return False
        wrong(handler, content)
        return True

    return answer


def ranges(hub: Hub) -> list[str | None]:
    return [one.range for one in hub.asked if one.path.endswith("model.safetensors")]


@pytest.mark.parametrize("what", WRONG)
def test_what_is_there_outlives_a_wrong_answer(
    what: str, hub: Hub, client: HubClient, store: Store
) -> None:
    begun(store)
    hub.fault = answering(WRONG[what], 1)
    assert (get(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == [f"bytes={HERE}-"] * 2


@pytest.mark.parametrize("what", WRONG)
def test_what_is_there_outlives_answers_that_are_always_wrong(
    what: str, hub: Hub, client: HubClient, store: Store
) -> None:
    part = begun(store)
    hub.fault = answering(WRONG[what], 100)
    with pytest.raises(DownloadError, match=r"5 times.*try again, and it goes on where it stopped"):
        get(client, store)
    assert part.read_bytes() == WEIGHTS[:HERE]
    assert len(ranges(hub)) == 5


@pytest.mark.parametrize("what", ["a page", "a page of no told length", "nothing"])
def test_a_page_is_no_beginning_of_a_file(
    what: str, hub: Hub, client: HubClient, store: Store
) -> None:
    hub.fault = answering(WRONG[what], 1)
    assert (get(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == [None, None]


def test_a_page_in_the_place_of_a_file_leaves_nothing_to_go_on_with(
    hub: Hub, client: HubClient, store: Store
) -> None:
    hub.fault = answering(WRONG["a page"], 100)
    with pytest.raises(DownloadError) as caught:
        get(client, store)
    assert str(caught.value) == (
        "the download of a/model stalled: model.safetensors was answered wrongly, 5 times without "
        "success (2,000 bytes were sent in place of its 1,048,576): look for a proxy in between, "
        "or check HF_ENDPOINT; then try again later"
    )
    assert [path.stat().st_size for path in store.root.rglob("*.part")] == [0]


def test_a_whole_file_is_compared_with_what_is_there(
    hub: Hub, client: HubClient, store: Store
) -> None:
    begun(store).write_bytes(WEIGHTS[:1000] + bytes(HERE))  # as after a power cut
    hub.fault = answering(lambda handler, content: handler.reply(200, content), 1)
    assert (get(client, store).folder / "model.safetensors").read_bytes() == WEIGHTS
    assert ranges(hub) == [f"bytes={1000 + HERE}-"]


def test_a_part_of_another_version_is_never_joined(hub: Hub, store: Store) -> None:
    with running(Hub(files=dict(FILES))) as web:
        web.fault = breaking_off("model.safetensors", 2_000_000)
        with pytest.raises(DownloadError, match="broke off"):
            fetch(web, store, attempts=1)
        num_wrong = 0

        def other_once(handler: Handler, content: bytes) -> bool:
            nonlocal num_wrong
            if not handler.start() or num_wrong:
                return with_etags(handler, content)
            num_wrong += 1
            where = f"bytes {handler.start()}-{len(content) - 1}/{len(content)}"
            body = bytes(len(content) - handler.start())
            handler.reply(206, body, {"content-range": where, "etag": '"other"'})
            return True

        web.fault = other_once
        web.asked.clear()
        entry = fetch(web, store)
        assert ranges(web) == [None, "bytes=2000000-", None]  # the first for its size
    for name, content in FILES.items():
        assert (entry.folder / name).read_bytes() == content
