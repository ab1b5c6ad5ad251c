"""What the engine holds is logged at load and after each job; growth is a warning."""

from __future__ import annotations

from inferno.client import EngineStats
from inferno.server.worker.worker import MemoryLog
from tests.server.http.serving import wait_until
from tests.server.worker.hosting import Host, Lines

MIB = 1 << 20


def stats(process: int, **device: int) -> EngineStats:
    """So many MiB."""
    device_bytes = {use: num * MIB for use, num in device.items()}
    return EngineStats(rss_bytes=process * MIB, device_bytes=device_bytes)


def grown(lines: Lines) -> list[tuple[object, object, object]]:
    told = lines.of("memory grew")
    return [(each["use"], each["bytes"], each["expected_bytes"]) for each in told]


def test_it_is_logged_at_load_and_after_a_job(lines: Lines) -> None:
    memory_log = MemoryLog(stats(300, weights=100, kv_cache=50))
    assert lines.of("memory at load") == [
        {
            "weights_bytes": 100 * MIB,
            "kv_cache_bytes": 50 * MIB,
            "process_bytes": 300 * MIB,
        }
    ]
    memory_log.note(stats(310, weights=100, kv_cache=50), job_id="a")
    [told] = lines.of("job over")
    assert (told["job_id"], told["process_bytes"]) == ("a", 310 * MIB)
    assert grown(lines) == []


def test_growth_of_a_device_is_told_once_for_each_level(lines: Lines) -> None:
    memory_log = MemoryLog(stats(300, weights=100, allocated=150))
    for allocated in (150, 210, 260, 261, 300, 330):
        memory_log.note(stats(300, weights=100, allocated=allocated))
    assert grown(lines) == [
        ("allocated", 260 * MIB, 150 * MIB),
        ("allocated", 330 * MIB, 260 * MIB),
    ]


def test_what_pytorch_keeps_for_the_next_steps_may_grow(lines: Lines) -> None:
    memory_log = MemoryLog(stats(300, allocated=150, reserved=160))
    memory_log.note(stats(300, allocated=150, reserved=900))
    assert grown(lines) == []
    assert lines.of("job over")[0]["reserved_bytes"] == 900 * MIB


def test_the_process_may_fill_its_cache_and_no_more(lines: Lines) -> None:
    memory_log = MemoryLog(stats(300, weights=100, kv_cache=500))
    memory_log.note(stats(860, weights=100, kv_cache=500))
    assert grown(lines) == []
    memory_log.note(stats(870, weights=100, kv_cache=500))
    assert grown(lines) == [("process", 870 * MIB, 800 * MIB)]


def test_a_worker_notes_every_job(echo: Host, lines: Lines) -> None:
    echo.execute(job_id="noted", prompt=[300], max_tokens=1)
    wait_until(lambda: bool(lines.of("job over")))
    [told] = lines.of("job over")
    assert told["job_id"] == "noted"
    assert told["finish_reasons"] == ["length"]
    assert told["weights_bytes"] == 0
