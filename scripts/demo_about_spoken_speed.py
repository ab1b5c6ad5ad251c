"""How people ask about devices, memory, speed, what is inside, and Python, by the answers."""

from __future__ import annotations

SPOKEN_SPEED: dict[str, tuple[str, ...]] = {
    "No GPU is needed": (
        "I have [no|not even a] [graphics card|GPU|video card][. Is that bad|. Does it work|]",
        "is an [old|ordinary|office] [laptop|PC|computer] [good |][enough|fine]",
        "[must|do] I [buy|have] [a graphics card|an expensive GPU|NVIDIA]",
        "what hardware [do I need|does it want|is needed]",
        "does it run on [just|only] a [processor|CPU]",
        "[does|will|would] this [thing|program|work] [run|work] on a [laptop|PC] [without a "
        "GPU|that has no GPU|with no graphics card]",
    ),
    "It runs on NVIDIA GPUs": (
        "I have an [RTX|NVIDIA|A100|H100|RTX 4090] card[. Is it used|. How do I use it|]",
        "how do I put [it|the model] on the [GPU|graphics card|video card]",
        "does it [use|know|speak] CUDA",
        "can it [run|compute] on [a data-centre GPU|an H100|my NVIDIA card]",
    ),
    "Yes, FP8 files": (
        "I have an FP8 [model|checkpoint|file][. Does it run|. What now|]",
        "do [FP8|8-bit float] [models|weights] [work|run][| here]",
        "can a [CPU|GPU] [use|run|read] FP8",
    ),
    "To make FP8": ("how do I [make|get] FP8 weights[| of my model]",),
    "Speculation guesses": (
        "how can guessing make it faster",
        "do I get [other|worse] answers [with|from|by] [guessed tokens|speculation]",
    ),
    "For a draft model": (
        "how do I [use|try] demo-draft [with|for|beside] demo",
        "I [want|have] a small model that guesses for a [big|large] one",
    ),
    "A Mac's GPU": (
        "I [have|own] a [Mac|MacBook|Mac mini][. Is its GPU used|. Is it fast|]",
        "does it [run|work] on [an M1|an M2|Apple silicon|an M3]",
        "can the [graphics|chip] of my [Mac|MacBook] help",
        "[does|would|will] it use the [GPU|chip|graphics card|graphics] of [my|a] [Mac|MacBook]",
        "my MacBook has a [good GPU|fast chip]. Is it used",
    ),
    "The option --device": (
        "how do I [say|tell it] where to compute",
        "which [devices|device names] are there",
    ),
    "Add --quantize": (
        "how do I make the [weights|model] [smaller|take less room|half as big]",
        "the model is too [big|large][. Can it be shrunk|. How do I make it smaller|]",
        "[which|what] [option|flag|switch] [shrinks|compresses] the [weights|model]",
        "can I [squeeze|press] the weights into [fewer|four|eight] bits",
        "[which|what] [flag|option] [gives|makes|is for] [weights of|weights take] "
        "[four|eight|4|8] bits",
        "I want [the weights|a model] in [four|eight|4|8] bits",
    ),
    "int8 is nearly": (
        "[how much|what] do I lose [with|by|through] [int8|int4|quantization|four bits]",
        "[is|will] a [quantized|packed|compressed|smaller] model [be |][worse|dumber|less clever]",
        "do [quantized|int4|int8] models [say|write] [worse|other] [answers|text]",
        "[does|will] [quality|the text|the output] [suffer|drop|get worse] [when I quantize|from "
        "quantizing|with fewer bits|if I quantize it]",
        "[which|what] is better, int8 or int4",
        "should I [take|use|choose] [int8 or int4|int4 or int8]",
        "[do|will] [the |][answers|texts|results] [get|become|be] [worse|bad|less good] "
        "[with|in|after] [int8|int4|quantization|four bits]",
        "is anything lost [with|by|when I use] [int8|int4|quantization|quantized weights]",
    ),
    "A parameter takes 2 bytes": (
        "how do I [reckon|estimate|guess] the [memory|size] of a model [from its parameters|]",
        "how many [bytes|bits] does a [parameter|weight] take",
    ),
    "Use less memory": (
        "it [needs|eats|takes] too much [memory|RAM]",
        "it [says|complains] that [it does not fit|memory is not enough|there is no memory left]",
        "my [laptop|machine] has [little|only 8 GB of] [memory|RAM][. What can I do|]",
        "the memory [runs out|is not enough]",
    ),
    "Bound all memory": (
        "it must not take more than [8|4|16] [GB|gigabytes]",
        "how do I keep it from taking [all|too much of] my [RAM|memory]",
        "other programs need [memory|RAM] too",
    ),
    "The KV cache gets half": (
        "how [big|large] is the cache[| of keys and values]",
        "[which|what] [option|flag|setting] [makes|sets] the [KV cache|cache] "
        "[bigger|smaller|size]",
        "how much [memory|RAM] goes to [the KV cache|keys and values]",
        "I want a [bigger|smaller|larger] [KV cache|cache][| for more users]",
        "can I [set|choose|fix] how [big|large] the [KV cache|cache] is",
        "what [sets|decides] the size of the cache for keys and values",
        "who decides how big the cache is",
    ),
    "With --kv-dtype int8": (
        "can the [keys and values|cache|KV cache] be [smaller|in int8|quantized]",
        "how do I get [twice|double] the context in the same memory",
    ),
    "Set the context in tokens": (
        "how [long|big] may a [prompt|conversation] be",
        "my [prompt|text] is too long for [it|the model]",
        "how do I [limit|shorten] the context",
    ),
    "It takes all physical cores": (
        "it [uses|takes|eats] all my [cores|processors|CPU]",
        "my [machine|laptop] gets [hot|loud|slow for other things]",
        "how do I leave [some cores|a core|processors] to others",
        "how many [threads|processors|cores] does it [use|run on]",
    ),
    "What is computed with": (
        "in [which|what] [precision|number format] does it compute",
        "can it [compute|calculate] in [float32|bfloat16|float16]",
    ),
    "If it is slow": (
        "it [crawls|is like a snail|takes for ever|takes ages]",
        "why is [it|everything|demo] [so|this|that] [slow|sluggish][| here]",
        "I get [only|just] two tokens [a|per] second",
        "what [makes|keeps] it [so |]slow",
        "[inferno|it|everything] is [awfully|terribly|really|painfully] slow. [Why|What is "
        "wrong|What is the reason|What can I do]",
        "what [could|may|can] be the [reason|cause] [when|if] [it|inferno] is [slow|so slow]",
    ),
    "Install a C++ compiler": (
        "it says that [the kernels|compiled kernels] are missing",
        "where do I get [kernels|the compiled kernels]",
        "there is no compiler [here|on my machine]",
    ),
    "The first token waits": (
        "why does it take [two|three|several] seconds [until|before] it [begins|says anything]",
        "the start is slow[, then it is fast|]",
    ),
    "It batches requests": (
        "how does it work [inside|under the hood]",
        "what is [its|the] [trick|secret|design]",
    ),
    "On a CPU it reads": (
        "is it [faster|better|quicker] than llama.cpp",
        "how does it compare [to|with] [llama.cpp|Ollama]",
        "why not [just |][use|take] llama.cpp",
    ),
    "For vLLM's Python API": (
        "I [come from|used|know] vLLM[. What is different|. What changes|]",
        "my code was written for vLLM",
    ),
    "Random weights in": ("can I [measure|time] a model without [downloading|having] its weights",),
    "A paged cache keeps": (
        "what does paged mean",
        "why is the cache [paged|in blocks]",
    ),
    "With continuous batching": ("what does continuous batching mean",),
    "The prefix cache keeps": (
        "many of my prompts [begin|start] [alike|with the same text]",
        "is the same [beginning|system prompt] computed [twice|each time|again]",
    ),
    "To compute every prompt": (
        "I don't want anything [cached|reused] between [prompts|requests]",
    ),
    "A language model is": ("how does a language model [work|speak|know what to say]",),
    "A token is a piece": (
        "is a token a [word|letter]",
        "what do you mean by tokens",
    ),
    "Write: from inferno import": (
        "I want to use it in [my own code|a script|a notebook|my Python program]",
        "how does [it|this] look in Python",
        "[show|give] me [a|some] [code|example|Python example|lines of Python]",
        "how do I [call|use] it from [a program|code|a notebook]",
        "is there [a library|a Python interface|something to import]",
    ),
    "LLM is the class": ("what does the [LLM class|class named LLM] do",),
    "AsyncLLM is LLM": (
        "my program is [async|full of coroutines]",
        "can I await [it|an answer]",
    ),
    "SamplingParams holds": ("how do I set [max_tokens|top_p|a seed] in [Python|code]",),
    "In Python, use llm.stream": ("how do I get [pieces|the text bit by bit] in [Python|my code]",),
    "In Python, use llm.chat": ("how do I send [messages|a conversation] from [Python|my code]",),
    "In Python, llm.logits": ("I want the raw [scores|numbers|logits] of [the tokens|a model]",),
    "Use LLM in a with block": ("how do I free the memory of a model in [Python|my program]",),
}
