"""What the embedded model is taught about hardware, memory, speed, and the words of the field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from demo_topic import Topic

_TUNING = Path(__file__).resolve().parents[1] / "docs" / "tuning.md"
_MODEL_ROW = re.compile(
    r"\| (?P<name>[\w.-]+) \| [\d.]+ billion \| (?P<stored>[\d.]+) \| (?P<int8>[\d.]+) "
    r"\| (?P<int4>[\d.]+) \|"
)
_MEMORY_ROW = re.compile(r"\| (?P<size>\d+) GB(?: and more)? \| (?P<choice>[^|;]+)")

SPEED = (
    Topic(
        "No GPU is needed: it runs on the CPU.",
        doing="[run|use] [it|inferno|a model] [without|with no] [a GPU|GPU|graphics card|NVIDIA "
        "card];[run|use] [it|inferno|a model] on [a|my|the] [CPU|laptop|PC|computer|server|"
        "Raspberry Pi];do without a GPU",
        naming="the CPU;the hardware;a machine without a GPU",
        asking=(
            "[does|will] [inferno|it] [need|require|want] a [GPU|graphics card|NVIDIA card]",
            "[can|does|will] [inferno|it] [run|work] [without|with no] [a GPU|GPU|graphics card]",
            "do I [need|require|have to buy] a [GPU|graphics card|NVIDIA card][| for "
            "inferno| to run it| for this]",
            "[does|can|will] [inferno|it] [run|work] on [a|my|the] [CPU|laptop|computer|PC|"
            "notebook|processor]",
            "what [does|can] [inferno|it] run on",
            "is a [GPU|graphics card|NVIDIA card] [needed|required|necessary][| for inferno]",
            "what if I have no [GPU|graphics card]",
            "I [have no|don't have a|have only a CPU and no] [GPU|graphics card][|. Can I use "
            "inferno|. Is that a problem|. Does it work]",
            "what [hardware|machine|computer|processor] [do I|does inferno] need",
            "GPU or [CPU|not]",
            "CPU or GPU",
        ),
    ),
    Topic(
        "It runs on NVIDIA GPUs, with kernels in Triton: inferno generate --prompt Hello --cuda",
        doing="[use|run on|choose|take] [the|a|my] [GPU|NVIDIA GPU|graphics card|NVIDIA card];"
        "use CUDA;run [it|a model] on [a|my|the] [GPU|NVIDIA card|graphics card]",
        naming="CUDA;--device cuda;NVIDIA GPUs;my NVIDIA GPU",
        asking=(
            "[can|does] [inferno|it] [use|support] [CUDA|an NVIDIA GPU|NVIDIA|my GPU|GPUs]",
            "I have [a GPU|an NVIDIA GPU|an NVIDIA card][|. How do I use it]",
            "[why|how] [is it slow|fast is it] on a GPU",
        ),
    ),
    Topic(
        "Yes, FP8 files are read: a GPU keeps them FP8, a CPU makes floats of them.",
        doing="[run|use|load|read] [FP8|an FP8 model|FP8 files|a model in FP8]",
        naming="FP8;FP8 [files|models|checkpoints];e4m3;8-bit floats;Qwen3-8B-FP8",
        asking=(
            "is FP8 [supported|refused][| on a CPU| on a GPU]",
            "[does|can|will] [it|inferno] [run|use|load|read|support] [FP8|an FP8 model|FP8 files]",
            "what [happens to|becomes of] FP8 [on a CPU|without a GPU|here]",
        ),
    ),
    Topic(
        "To make FP8 weights on a GPU, type: inferno generate --prompt Hello --cuda --quantize fp8",
        doing="[make|create|get] FP8 weights;quantize [to|in] FP8;make FP8 of [floats|my model]",
        naming="--quantize fp8;quantization to FP8",
        asking=("[can|does] [it|inferno] [make|quantize to] FP8",),
    ),
    Topic(
        "FP8 is read in blocks of 128 by 128, as Qwen has it, and as compressed-tensors.",
        naming="the [kinds|forms] of FP8;compressed-tensors;float-quantized;blocks of 128 by 128",
        asking=(
            "[which|what] [kinds|forms|sorts] of FP8 [are there|does it read|are read|work]",
            "[which|what] FP8 [files|models|checkpoints] [work|are read|can it load]",
            "does it read compressed-tensors",
        ),
    ),
    Topic(
        "To compile a GPU's kernels ahead, type: inferno warmup demo --device cuda",
        doing="[compile|build] kernels [ahead|for a GPU|before the first start];warm [it|a GPU] up",
        naming="inferno warmup;the command warmup;warmup;a warm-up",
        asking=(
            "what [does|can] inferno warmup do",
            "the first start on [a|my] GPU [is slow|takes long]",
        ),
    ),
    Topic(
        "On a GPU --gpu-memory-utilization 0.9 is the share of its memory that is taken.",
        doing="[set|limit|bound|choose] the [memory|share] of [the|a|my] GPU;take less of [the|my] "
        "GPU's memory",
        naming="the memory of the GPU;GPU memory;the share of a GPU",
        asking=(
            "how much [of the GPU's memory|GPU memory|memory of the GPU] does it take",
            "it takes [all|too much] of my GPU's memory",
            "can two engines share a GPU",
        ),
    ),
    Topic(
        "A Mac's GPU is used with --device mps: inferno generate --prompt Hello --device mps",
        doing="[use|run it on] [a Mac|my Mac|Apple silicon|the Mac's GPU|an M1|an M2|Metal]",
        naming="MPS;Apple silicon;--device mps;Macs;Metal;the GPU of a Mac",
        asking=(
            "[does|can|will] [inferno|it] [run|work] on [a|my] [Mac|MacBook|iMac|M1|M2|M3]",
            "[can|does] [inferno|it] [use|support] [Metal|MPS|Apple silicon|the GPU of my Mac]",
            "I have a [Mac|MacBook]",
        ),
    ),
    Topic(
        "The option --device takes cpu, cuda, cuda:N or mps.",
        doing="[choose|change|set|pick] [the|a] device",
        naming="the device;devices;the devices",
        asking=("[which|what] devices [are there|does it support|can I use|does it know]",),
    ),
    Topic(
        "Add --quantize int8 or int4: inferno play demo --quantize int8",
        doing="[quantize|compress|shrink|pack] [a model|the model|my model|the weights|weights|"
        "models];make [a|the|my] model smaller;[load|run|use|have] [a|the|my] model in [int8|int4|"
        "8 bits|4 bits|fewer bits];use [int8|int4|8-bit|4-bit|quantized] weights;"
        "[use|get|do] quantization",
        naming="quantization;quantized weights;int8 weights;int4 weights;quantizing;"
        "[4-bit|8-bit|int4|int8] quantization",
        asking=(
            "[can|does] [it|inferno] [quantize|support int8|support int4|do int4|do int8]",
            "[which|what] option [quantizes|packs the weights|makes the model smaller]",
            "[which|what] [kinds of quantization|quantizations] [are there|does it know]",
        ),
    ),
    Topic(
        "int8 is nearly lossless; int4 is smaller and faster alone, and loses a little.",
        doing="choose between int8 and int4",
        naming="the quality of [int8|int4|quantized models];the loss of quantization;"
        "the difference between int8 and int4;int8 or int4",
        asking=(
            "does [quantization|int8|int4|quantizing] [make answers worse|lose quality|cost "
            "quality|hurt|change the answers]",
            "is [int8|int4|quantization] [worse|bad|good|lossless|exact|good enough|better]",
            "[which|what] is better, int8 or int4",
            "should I [use|take] int8 or int4",
            "how [good|bad|exact] is [int8|int4|quantization]",
            "what do I lose with [int8|int4|quantization]",
        ),
    ),
    Topic(
        "A parameter takes 2 bytes in bfloat16, 8.5 bits in int8, 4.5 bits in int4.",
        doing="[compute|calculate|estimate] [the memory of a model|how much memory a model takes]",
        naming="the [size|memory] of [a model|the weights];the memory that a model takes",
        asking=(
            "how much [memory|RAM] [do I need|does it need|does a model need|does a model take|is "
            "needed|does inferno need|does it take]",
            "how [big|large] is a model[| in memory]",
            "how many [bytes|gigabytes] does a [model|parameter] [take|need|have]",
        ),
    ),
    Topic(
        "Use less memory: --quantize int8, a smaller --max-model-len, or fewer --num-blocks.",
        doing="[save|use less|need less|reduce the|lower the] memory;[fit|squeeze] a [large|big] "
        "model [into|in] [my|little] memory",
        naming="out of memory;NotEnoughMemory;too little memory",
        asking=(
            "[it|inferno] [needs|takes|uses] too much [memory|RAM]",
            "[there is|I have] not enough [memory|RAM]",
            "I [ran|am] out of [memory|RAM]",
            "[the|my] model [does not|doesn't] fit[| into memory]",
            "it says NotEnoughMemory",
            "my [memory|RAM] is [full|too small]",
        ),
    ),
    Topic(
        "Bound all memory with --memory: inferno serve demo --memory 8GB",
        doing="[bound|cap|limit] [the memory|all memory|its memory|the RAM];set a memory limit;"
        "give it [only|at most] [4|8|16|2] [GB|gigabytes]",
        naming="a memory limit;the memory limit;a bound of the memory",
        asking=(
            "[it|inferno] [may|must|should] take [at most|only|no more than] [4|8|16] GB",
            "[can|may] I [bound|cap|limit] [the memory|its memory|the RAM]",
        ),
    ),
    Topic(
        "The KV cache gets half of the free memory; --num-blocks sets its size by hand.",
        doing="[set|change|choose|limit] the size of the [KV |]cache;make the [KV |]cache "
        "[smaller|bigger|larger]",
        naming="the size of the KV cache;the memory of the KV cache",
        asking=("how [big|large] is the [KV |]cache", "how much memory does the KV cache take"),
    ),
    Topic(
        "With --kv-dtype int8 the KV cache takes half the memory.",
        doing="[quantize|halve|shrink] the [KV |]cache;[have|get] longer contexts in the same "
        "memory",
        naming="an int8 cache;the type of the KV cache",
    ),
    Topic(
        "Set the context in tokens with --max-model-len; prompt and answer share it.",
        doing="[change|set|limit|shorten] [the context|the length of the context|the context "
        "length]",
        naming="the context[| length| window];the length of the context",
        asking=(
            "how [long|big|large] is the context",
            "how long [can|may] [a prompt|my prompt|a conversation] be",
            "my prompt is too long",
        ),
    ),
    Topic(
        "It takes all physical cores; choose fewer with --threads 1, for instance.",
        doing="[set|change|choose|limit] the [threads|number of threads|cores|number of cores];"
        "use [fewer|more|one|two|all] [cores|threads|processors];leave cores to other programs",
        naming="the threads;the cores;the number of [threads|cores];CPU threads;hyper-threads",
        asking=(
            "how many [threads|cores|processors|CPUs] [does it use|should I use|are used|does "
            "inferno use|does it take]",
            "[it|inferno] [uses|takes] [all|too many] [cores|threads|processors]",
            "[does it use|can it use] [all|several] [cores|threads|processors]",
            "how do I make it use less of my CPU",
        ),
    ),
    Topic(
        "What is computed with is set by --dtype: float32, bfloat16 or float16.",
        doing="[change|choose|set] the [dtype|number format|precision|data type];compute in "
        "[bfloat16|float32|float16]",
        naming="the dtype;bfloat16;float16;float32;the precision",
        asking=("[should I use|what is better,] bfloat16 or float32",),
    ),
    Topic(
        "If it is slow, see what inferno doctor says: perhaps the kernels were not built.",
        doing="[make|get] [it|inferno|the model|a model|answers] [faster|quicker];speed [it|"
        "inferno] up",
        naming="the slowness;slow answers;[more|better] speed",
        asking=(
            "[why|how] is [inferno|it|the model] so [slow|sluggish]",
            "[it|inferno|the model|everything] is [very |so |too |]slow",
            "[only|I get|just] a few tokens [per|a] second",
            "it takes [too long|forever|ages]",
        ),
    ),
    Topic(
        "Install a C++ compiler such as g++, then inferno-engine again, to build the kernels.",
        doing="[build|compile|get|install] the [compiled |]kernels;install a compiler",
        naming="the kernels;compiled kernels;a C++ compiler;a compiler;native kernels",
        asking=(
            "the kernels [were not built|don't run|are missing]",
            "inferno's compiled kernels don't run",
            "do I need [a compiler|g++|a C++ compiler]",
        ),
    ),
    Topic(
        "The first token waits for Python to load PyTorch: keep a chat or a server running.",
        naming="the first token;the cold start;the time to the first token;a slow start",
        asking=(
            "why does [the first token|the start|the first text|it] take [seconds|so long to "
            "start]",
            "why does it start [so |]slowly",
            "[the start|starting|loading] is slow",
        ),
    ),
    Topic(
        "It batches requests continuously and keeps keys and values in a paged cache.",
        naming="the [inner life|architecture|design] of inferno;the inside of inferno",
        asking=(
            "is inferno [fast|quick]",
            "[why|how] is inferno [fast|so fast|quick]",
            "how does [inferno|it] work[| inside]",
            "what makes inferno [fast|quick]",
            "how fast is inferno",
        ),
    ),
    Topic(
        "On a CPU it reads prompts about four times as fast as llama.cpp.",
        naming="llama.cpp;the difference to llama.cpp",
        asking=(
            "is [it|inferno] [faster|slower|better] than [llama.cpp|Ollama]",
            "how [does|fast is] [it|inferno] [compare|beside|compared] [with|to] llama.cpp",
            "inferno or llama.cpp",
        ),
    ),
    Topic(
        "For vLLM's Python API there is a page: docs/migrating-from-vllm.md",
        doing="[move|migrate|switch|come] from vLLM",
        naming="vLLM;the difference to vLLM;migrating",
        asking=("is it like vLLM", "[can I use|does it have] vLLM's API"),
    ),
    Topic(
        "Random weights in the shapes of config.json: inferno bench latency --load-format dummy",
        doing="[use|try] [dummy|random] weights;measure a model without its weights",
        naming="dummy weights;random weights;load-format dummy",
    ),
    Topic(
        "A paged cache keeps the keys and values of each request in small blocks.",
        naming="[a|the] paged [|KV ]cache;paging;a block table;paged attention;[a|the] KV cache;"
        "blocks",
        asking=("what does the paged cache do",),
    ),
    Topic(
        "With continuous batching, a new request joins the others at any step.",
        naming="continuous batching;batching;batches",
        asking=("what does [continuous batching|batching] mean", "does it batch requests"),
    ),
    Topic(
        "The prefix cache keeps the start of a prompt, so it is computed only once.",
        naming="[a|the] prefix cache;prefix caching;prompts that begin alike",
        asking=("what does the prefix cache do", "how does the prefix cache work"),
    ),
    Topic(
        "To compute every prompt anew, type: inferno serve demo --no-prefix-cache",
        doing="[switch|turn] [off the prefix cache|the prefix cache off]",
    ),
    Topic(
        "Speculation guesses the next tokens and checks them in one step; it changes no token.",
        naming="speculation;guessed tokens;proposals",
        asking=(
            "what does speculation do",
            "does [speculation|speculative decoding] change the [answers|text|tokens|output]",
            "how [does it|are] guess[| the next] tokens",
            "is the text the same with speculation",
        ),
    ),
    Topic(
        "Speculation is on by default; to switch it off, type: inferno play demo --speculative off",
        doing="[switch|turn] [speculation off|off speculation|speculation on|on speculation];"
        "use speculative decoding",
        naming="--speculative off",
        asking=(
            "is [speculation|speculative decoding] on[| by default]",
            "must I switch on speculation",
        ),
    ),
    Topic(
        "For a draft model, type: inferno generate --prompt Hello --speculative-model demo-draft",
        doing="use a [draft model|smaller model that guesses];give [it|demo] a draft model",
        naming="a draft model;draft models;the draft model",
        asking=(
            "[which|what] model [guesses|can be a draft]",
            "how do I [add|set|choose|name] a draft model",
        ),
    ),
    Topic(
        "A language model is a program that says, word by word, what may come next.",
        naming="a [large |]language model;an LLM",
        asking=(
            "what does LLM [mean|stand for]",
            "how [does a language model|do language models|does an LLM] work",
            "what does a language model do",
        ),
    ),
    Topic(
        "A token is a piece of text, such as a short word or a part of one.",
        naming="a token",
        asking=("what does [token|a token] mean", "what are tokens"),
    ),
    Topic(
        'Write: from inferno import LLM, and then LLM("demo").generate("Hello")',
        doing="[use|call|run|import|load] [inferno|it|a model] [from|in|with] [Python|my "
        "program|my code|a script];[write|make] [a|my] Python [program|script] with it;"
        "generate text [in|with|from] Python;complete a prompt in Python",
        naming="the Python [API|library|interface];Python;an API for Python;the [Python |]library",
        asking=(
            "does [inferno|it] have [a Python API|an API|a Python interface|a Python library]",
            "[can|may] I [use|call|import] inferno [from|in|with] Python",
            "show me [inferno|an example|some lines] in Python",
            "is there [a Python API|an API|a library]",
            "how does [it|inferno] work in Python",
            "[give|show] me [an example|some lines|a few lines|an example program][| in Python| "
            "with inferno]",
        ),
    ),
    Topic(
        "LLM is the class that loads a model and generates text in Python.",
        naming="[the|inferno's] LLM class;the class LLM;LLM in Python",
        asking=("what does the [LLM class|class LLM] do", "what is the [LLM class|class LLM] for"),
    ),
    Topic(
        "AsyncLLM is LLM for coroutines: the same methods, with await.",
        doing="use [it|inferno] [in coroutines|with asyncio|asynchronously]",
        naming="AsyncLLM;asyncio;coroutines;an async API",
    ),
    Topic(
        "SamplingParams holds temperature, top_p, max_tokens, seed, stop and so on.",
        doing="set [the temperature|options|parameters] in Python",
        naming="SamplingParams;sampling parameters;the parameters of a request in Python",
    ),
    Topic(
        "In Python, use llm.stream(prompt) for a text piece by piece.",
        doing="stream [text|tokens|an answer|a completion] in Python",
        naming="llm.stream;streams in Python",
    ),
    Topic(
        "In Python, use llm.chat(messages) for the answer to a conversation.",
        doing="[chat|have a chat|have a conversation] in Python",
        naming="llm.chat;chats in Python;messages in Python",
    ),
    Topic(
        "In Python, llm.logits(token_ids) gives the logits of each position.",
        doing="[get|see|have] [the |]logits[| in Python]",
        naming="llm.logits;logits",
    ),
    Topic(
        "Use LLM in a with block, or call llm.close() at the end.",
        doing="[close|free|release] [a model|an LLM|the model|its memory][| in Python]",
        naming="llm.close;the end of an LLM",
    ),
)


def sizes() -> Iterator[Topic]:
    """How much memory each model takes, and what fits, as docs/tuning.md has it."""
    text = _TUNING.read_text(encoding="utf-8")
    for row in _MODEL_ROW.finditer(text):
        name, brief = row["name"], re.sub(r"(-Chat|-Instruct)?-v[\d.]+$", "", row["name"])
        for form, spoken in (
            ("int8", "int8|8 bits|8-bit"),
            ("int4", "int4|4 bits|4-bit"),
            ("stored", "16 bits|bfloat16|full precision"),
        ):
            plain = "16 bits" if form == "stored" else form
            called = f"[{brief}|{brief.replace('-', ' ')}|{name}]"
            yield Topic(
                f"The weights of {brief} take {row[form]} GB in {plain}.",
                asking=(
                    f"how [much memory|many gigabytes|much RAM|many GB|much space] does {called} "
                    f"[take|need|use|have|require] [in|with|as] [{spoken}]",
                    f"how [big|large] is {called} [in|with|as] [{spoken}]",
                    f"what is the [size|memory] of {called} in [{spoken}]",
                    f"[memory|RAM|size] of {called} in [{spoken}]",
                ),
            )
    for row in _MEMORY_ROW.finditer(text):
        size = row["size"]
        yield Topic(
            f"With {size} GB of memory, a good choice is {row['choice'].strip()}.",
            asking=(
                f"[which|what] model [fits|fits into|is good for|suits|should I use with|can I run "
                f"with|runs in|is best for] {size} GB[| of memory| of RAM]",
                f"[which|what] model [can I run|should I use|fits|is best] [if|when] I have {size} "
                f"GB[| of memory| of RAM]",
                f"I have {size} [GB|gigabytes] of [memory|RAM][|. Which model fits]",
                f"what [can I run|fits] in {size} GB[| of memory]",
            ),
        )
