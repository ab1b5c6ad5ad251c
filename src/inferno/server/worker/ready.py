"""What a worker says of itself once it takes jobs."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import inferno
from inferno.client import EngineStats
from inferno.server.served import Served
from inferno.server.worker.messages import Capabilities, Device, Memory, Model, Ready
from inferno.server.worker.settings import WorkerSettings


def ready_message(
    served: Served,
    stats: EngineStats,
    settings: WorkerSettings,
    paths: Sequence[str],
    listening_at: str,
) -> Ready:
    """Return the message.

    paths           of the worker's routes.
    listening_at    the URL that others reach where nothing else was said.
    """
    facts = served.facts
    return Ready(
        message_id=secrets.token_hex(16),
        worker_id=settings.worker_id,
        uri=settings.uri or listening_at,
        version=inferno.__version__,
        model=Model(
            name=served.names[0],
            fingerprint=served.fingerprint,
            dtype=facts.dtype,
            vocab_size=facts.vocab_size,
            max_model_len=facts.max_model_len,
        ),
        device=Device(kind=settings.device, index=settings.device_index),
        memory=Memory(device_bytes=dict(stats.device_bytes), rss_bytes=stats.rss_bytes),
        capabilities=Capabilities(
            routes=list(paths),
            chat=served.text.has_chat_template,
            max_running_jobs=facts.max_num_seqs,
            max_waiting_jobs=served.settings.max_queue,
            kv_cache_tokens=facts.num_blocks * facts.block_size,
        ),
    )
