"""What the embedded model is taught about inferno: what it is, to install it, commands, models."""

from __future__ import annotations

from demo_topic import Topic

START = (
    Topic(
        "Inferno is a Python package that runs large language models on your own machine.",
        naming="this [program|tool|package|project|software|thing];the purpose of inferno;"
        "the [point|idea|goal] of inferno",
        asking=(
            "what is inferno",
            "what [is|'s] inferno",
            "[tell me|tell me something|can you tell me] about inferno",
            "what [does|can|could] inferno do[| for me]",
            "what is inferno [for|good for|used for|about]",
            "do you know [inferno|what inferno is|anything about inferno]",
            "what kind of [program|tool|software|package] is inferno",
            "[why|when] [would|should] I use inferno",
            "what do people [use|need|want] inferno for",
            "is inferno a [program|package|tool|library]",
            "[explain|describe] inferno[| to me| in one sentence| shortly]",
        ),
    ),
    Topic(
        "It is for people who run language models on CPUs, and for those who write or port models.",
        asking=(
            "who is [inferno|it|this|this program] for",
            "who [uses|needs|should use|would use] inferno",
            "for whom [is inferno|was inferno made]",
            "is inferno [for me|right for me]",
            "who [is|are] the users of inferno",
        ),
    ),
    Topic(
        "Inferno runs Llama, Mistral, Mixtral, Qwen and gpt-oss models.",
        naming="the model families;supported models",
        asking=(
            "[which|what] models [does|can|will] inferno [run|support|load|use|handle|know]",
            "[what|which] [models|language models|LLMs] does inferno [know|support|work with]",
            "[what|which] [kinds|families|sorts|types] of models [can|does] inferno [run|support]",
            "[can|does|will] [inferno|it] [run|support|load|work with] "
            "[Llama|Qwen|Mistral|Mixtral|gpt-oss|Qwen3|Qwen2|Llama 3|TinyLlama]",
            "[can|may] I [run|use|load] [Llama|Qwen|Mistral|Mixtral|gpt-oss][| in inferno]",
            "[which|what] models [are supported|work|can I run|can I use|are there]",
            "is [Llama|Qwen|Mistral|Mixtral|gpt-oss|TinyLlama] supported[| by inferno]",
            "list the models that inferno runs",
            "[which|what] [architectures|model families] [are there|work|does it know]",
        ),
    ),
    Topic(
        "Clone the repository, then type make demo: it installs everything into .venv.",
        doing="install [inferno|it|you|this|the program|the package];set [it|inferno] up;"
        "get [inferno|started|it running];get started[| with inferno]",
        naming="the installation;installing[| inferno];the set-up;make demo",
        asking=(
            "how is inferno installed",
            "[is it|is inferno] [hard|easy] to install",
            "what [are|is] the first [steps|step]",
            "[where|how] do I [start|begin]",
        ),
    ),
    Topic(
        "Its package is named inferno-engine, for another project has the name inferno.",
        naming="inferno-engine;pip install inferno;the name of the package;"
        "[the other|another] inferno",
        asking=(
            "[what|how] is the package [named|called]",
            "pip install inferno [gave|gives|installed] me something [else|different]",
            "pip [installs|installed|gets|got] the wrong [package|inferno|thing|program]",
            "is inferno on PyPI",
            "[can|may] I [pip install inferno|install it with pip|install it from PyPI]",
            "why is it [called|named] inferno-engine",
        ),
    ),
    Topic(
        "Install PyTorch's CPU build first: the default build brings 5.5 GB of GPU packages.",
        doing="make the [installation|download] smaller;install [less|without CUDA|only the CPU "
        "build];avoid the [big|large|huge] download;install PyTorch",
        naming="PyTorch's CPU build;the size of the installation;the [5.5 GB|gigabytes]",
        asking=(
            "why [does|is] the [installation|download] [fetch gigabytes|so big|so large|take so "
            "long|download so much]",
            "why does it [download|fetch|install] [CUDA|so much|gigabytes|GPU packages]",
            "how [big|large] is [the installation|the download|PyTorch]",
            "[which|what] PyTorch [do I need|should I install]",
        ),
    ),
    Topic(
        "You need Python 3.11 or newer; Linux is what it is tested on.",
        naming="the [Python|required] version;the requirements;the [operating system|platform];"
        "[Windows|Linux|macOS]",
        asking=(
            "[which|what] [version of Python|Python version|Python|Python release] [do I need|does "
            "inferno need|is needed|is required|does it want|must I have|should I have]",
            "[does|will] [inferno|it] [run|work] [on|under] [Windows|Linux|macOS|Ubuntu]",
            "[does|will] [inferno|it] [run|work] with Python [3.9|3.10|3.12|3.13|3.8|3.11]",
            "is Python [3.9|3.10|3.12|3.11|3.13] [enough|okay|new enough|too old|supported]",
            "[which|what] operating system[|s] [do I need|is needed|does it need|are supported]",
            "how [old|recent] [may|can|must] [Python|my Python] be",
            "what [does inferno|do I] need to run",
            "[what|which] are the [system |]requirements",
        ),
    ),
    Topic(
        "Yes, it is open source, under the Apache licence 2.0.",
        naming="the [licence|license];[inferno's|its] [licence|license|terms];open source;"
        "the [Apache|Apache 2.0] [licence|license]",
        asking=(
            "is [inferno|it|this] [free|open source|free software|open|commercial|for sale]",
            "what [is|'s] [the|inferno's|its] [licence|license][| of inferno| of the program]",
            "[which|what] [licence|license] [does inferno have|is it under|is inferno under|does "
            "it have|is used]",
            "how much does [inferno|it] cost",
            "what does [it|inferno] cost",
            "[can|may] I use [inferno|it] [for free|at work|in a product|commercially|in my "
            "company]",
            "do I have to pay[| for it| for inferno]",
            "[may|can] I [copy|change|sell|share|publish] [inferno|it|the code|its code|"
            "the source|the source code]",
            "who owns inferno",
            "is the [source|code|source code] [open|free|public]",
        ),
    ),
    Topic(
        'To generate text, type: inferno generate --prompt "Once upon a time"',
        doing="[generate|make|write|produce|create] [|some ]text;[complete|continue] [a prompt|a "
        "text|my prompt|my text];generate[| something]",
        naming="inferno generate;the command generate;generate",
        asking=(
            "[what|which] command [generates|makes|writes|completes|continues] [text|a prompt]",
            "what [does|can] inferno generate do",
            "what is [inferno generate|the command generate|generate] [for|good for]",
        ),
    ),
    Topic(
        "To let the model answer, add --chat: inferno generate --chat --prompt Hello",
        doing="[ask|put] [a|one] question [in|from] the shell;get an answer in the shell;"
        "ask something in a script",
        naming="the difference between a prompt and a message",
        asking=(
            "it [goes on with|continues|repeats] my [question|text|prompt] instead of answering",
            "why does it not answer my [question|prompt]",
            "why does it [continue|go on with] my [question|text]",
            "inferno generate does not answer[| my question]",
        ),
    ),
    Topic(
        "To chat with a model, type: inferno play demo",
        doing="[chat|talk|speak][| with you| with a model| with inferno| to you| with it];"
        "[start|begin|open] [a chat|chatting|the chat|a conversation];use the chat;"
        "chat in the terminal;have a conversation",
        naming="inferno play;the command play;the chat;a chat;play",
        asking=(
            "what [does|can] inferno play do",
            "[what|which] command [starts|opens|begins|is for] [a chat|the chat|chatting]",
            "what is [inferno play|the command play|play] [for|good for]",
        ),
    ),
    Topic(
        "To check your machine, type: inferno doctor",
        doing="[check|test|examine|look at] my [machine|computer|installation|system|set-up|PC];"
        "find out what is wrong;see what inferno finds[| here];diagnose a problem;"
        "see whether everything is fine",
        naming="inferno doctor;the command doctor;doctor",
        asking=(
            "what [does|can] inferno doctor do",
            "what is [inferno doctor|the command doctor] [for|good for]",
            "[what|which] command [checks|tests|examines] my [machine|computer|system]",
            "something is wrong[| with inferno| with my machine]",
            "[inferno|it] [does not|doesn't|won't] [work|start|run][|. What can I do|. Help]",
            "what [can|should] I do if [inferno|it] [does not work|doesn't work|fails|crashes]",
            "how do I know that my machine is [fine|ready|good enough]",
            "what belongs in a bug report",
            "[where|how] [do|can] I report a [bug|problem|mistake]",
        ),
    ),
    Topic(
        "To check a model's files and its chat template, type: inferno doctor demo",
        doing="[check|look at|examine|inspect|test] [a|the|my] [model's files|chat template|"
        "tokenizer of a model|files of a model|template of a model];find out what is wrong with a "
        "[model's files|chat template|template|tokenizer];[see|know] whether [a|the|my] "
        "[chat template|template|tokenizer] is [right|good|broken|fine]",
        naming="doctor of a model;inferno doctor with a model;the check of a model's files;"
        "a broken chat template;a wrong template;a broken tokenizer;inferno doctor MODEL",
        asking=(
            "is [my|the|a] [chat template|template|tokenizer] [right|broken|okay|good|wrong]",
            "are [the|my|a model's] files [right|whole|complete|broken|damaged]",
            "what does inferno doctor [demo|MODEL|with a model] [do|say|check]",
            "[what|which] command [checks|looks at] [a|the] [chat template|model's files]",
            "the [template|chat template|tokenizer] of my model is [odd|wrong|broken|missing]",
            "why does the chat template fail",
        ),
    ),
    Topic(
        "To use another chat template, type: inferno play demo --chat-template chat.jinja",
        doing="[use|give|try] [another|my own|a different] chat template;[replace|change] the chat "
        "template",
        naming="a chat template of my own",
        asking=("[can|may] I [replace|change] the chat template of a model",),
    ),
    Topic(
        "To compare a model with an independent one, step by step, type: inferno verify demo",
        doing="[verify|check|test|compare|prove|validate] [a|the|my] [model|new model|ported "
        "model|model's maths];see [that|whether] [a|the|my] model is [right|correct|computed "
        "correctly];find [a mistake|the mistake|the wrong layer] in [a|my] model;"
        "debug [a|my] model;port a model;check the [numbers|results|maths] of a model",
        naming="inferno verify;the command verify;an oracle;verify;verification",
        asking=(
            "what [does|can] inferno verify do",
            "what is [inferno verify|the command verify] [for|good for]",
            "[what|which] command [checks|verifies|compares|tests] [a|the] model",
            "how do I know that [a|the|my] model is [right|correct|computed right|not wrong]",
            "are [inferno's|its|the] [numbers|results|outputs] [right|correct]",
            "is [my|the|a|this] model computed [right|correctly|well]",
            "which layer [is|went] wrong",
        ),
    ),
    Topic(
        "To measure speed on this machine, type: inferno bench latency",
        doing="measure [the|its] [speed|performance|latency];[benchmark|time] [a model|the "
        "model|inferno|my machine];see how fast a model [is|runs];measure tokens [per|a] second",
        naming="inferno bench;the command bench;inferno bench latency;a benchmark;bench",
        asking=(
            "what [does|can] inferno bench do",
            "what is [inferno bench|the command bench|bench latency] [for|good for]",
            "[what|which] command measures [speed|tokens per second|how fast it is|latency]",
            "how fast is [my machine|a model on my machine|Qwen on my machine|my computer]",
            "how many tokens [a|per] second [do I get|will I get|does it make|are there]",
        ),
    ),
    Topic(
        "To measure many requests at once, type: inferno bench throughput",
        doing="measure [throughput|many requests|a batch];benchmark many requests",
        naming="inferno bench throughput;bench throughput;the throughput",
        asking=("what [does|is] bench throughput[| do| for]", "which command measures throughput"),
    ),
    Topic(
        "To time a server's streams under load, type: inferno bench serve "
        "--base-url http://localhost:8000 --model demo",
        doing="[benchmark|time|measure|load-test|stress] [a|the|my] server;"
        "measure a server under load",
        naming="inferno bench serve;bench serve;a load test",
        asking=("how fast is [my|the] server", "how much load can my server [take|bear]"),
    ),
    Topic(
        "To see the version, type: inferno --version",
        doing="[see|find|show|print] the version[| of inferno]",
        naming="the version of inferno;the inferno version;its version",
        asking=(
            "[which|what] version [is this|do I have|of inferno is this|is installed]",
            "how new is [my|this] inferno",
        ),
    ),
    Topic(
        "Type /help in the chat; in the shell, type: inferno --help",
        doing="[get|find|see] [|more |some ]help;see all options;list the options[| of a command]",
        naming="/help;the help;--help",
        asking=(
            "[what does /help do|what is /help|what is /help for|and /help]",
            "where [can I find|is|do I find|can I get] [help|more help|the help]",
            "is there [a help|help|any help]",
            "where are the options[| described| listed]",
        ),
    ),
    Topic(
        "For the tab key to complete commands, run once: inferno --install-completion",
        doing="[complete|autocomplete] commands[| with the tab key];use [tab|shell] completion;"
        "install [shell |]completion",
        naming="shell completion;tab completion;completion in bash;--install-completion",
        asking=("does the tab key work", "does it complete [commands|options] in [bash|zsh|fish]"),
    ),
    Topic(
        "Give its folder or its name: inferno generate --model Qwen/Qwen3-0.6B",
        doing="[use|run|load|try|choose|pick] [another|a different|a bigger|my own|a real] model;"
        "[change|switch] the model;[run|use|load] a Hugging Face model;load a model from [a folder|"
        "Hugging Face|my disk];use a model that I [have|downloaded]",
        naming="a Hugging Face id;a model of my own",
        asking=(
            "how are models [named|given]",
            "how [do|can|would|could] I [run|use|load|start] [Llama|Qwen|Mistral|Mixtral|gpt-oss]",
            "what [do|must] I type to [run|use|load] [Llama|Qwen|Mistral|Mixtral|gpt-oss]",
        ),
    ),
    Topic(
        "To download a model, type: inferno download Qwen/Qwen3-0.6B",
        doing="[download|get|fetch] [a|another] model;download [Llama|Qwen|a Hugging Face model]",
        naming="inferno download;downloading models",
        asking=(
            "where do [models|the models|other models] come from",
            "where [do|can] I [get|find|download] [models|other models|more models]",
            "do I have to download [a model|anything]",
            "how are models downloaded",
        ),
    ),
    Topic(
        "To see which models are on this machine, type: inferno list",
        doing="[list|see|show] [my|the downloaded|all] models[| on this machine]",
        naming="inferno list;the models on [my disk|this machine]",
        asking=(
            "which models [do I have|are here|are on my disk|are on this machine]",
            "what have I downloaded",
        ),
    ),
    Topic(
        "To see what a model is, its config and its licence, type: inferno show demo",
        doing="[see|read|show] a model's [config|licence|tensors|chat template]",
        naming="inferno show;the licence of a model;the config of a model",
        asking=("what is [in|inside] a model", "which licence does a model have"),
    ),
    Topic(
        "To see the memory that a model will take, type: inferno plan Qwen/Qwen3-0.6B",
        doing="[see|know|find out|check|tell] whether [a|the|my] model [fits|will fit|fits in my "
        "memory|fits before I load it];plan [the memory|memory|a model];see what a model will "
        "take[| before it is loaded];foresee the memory of a model;[know|find out|see] how much "
        "memory a model [takes|will take]",
        naming="inferno plan;the command plan;a plan of the memory;plan",
        asking=(
            "[will|does|would] [it|Qwen3-8B|a model|Qwen|Llama|this model|my model] fit[| here| "
            "into my memory| in memory| in RAM]",
            "can I know [before|beforehand] [whether|if] [it|a model] fits",
            "how fast will a model be before I download it",
            "where is the memory of a model shown",
            "[what|which] command [shows|tells] [how much memory a model takes|whether a model "
            "fits|the memory of a model]",
            "what [does|can] inferno plan do",
            "what is [inferno plan|the command plan] [for|good for]",
        ),
    ),
    Topic(
        "To write a model as a GGUF file, type: inferno convert demo --to demo.gguf --type q4_k",
        doing="[write|save|convert|export|turn] a model [as|to|into] [GGUF|a GGUF file];"
        "[make|create|produce|write] [a|my own] GGUF file[| for llama.cpp];convert [a|the|my] model"
        "[| for llama.cpp];write a model for llama.cpp",
        naming="inferno convert;the command convert;convert;a GGUF file of a model;"
        "converting a model;converting to GGUF",
        asking=(
            "what [does|can] inferno convert do",
            "what is [inferno convert|the command convert|convert] [for|good for]",
            "[what|which] command [writes|makes|creates] [GGUF|GGUF files|a GGUF file]",
            "can llama.cpp read what inferno writes",
            "how [do|can] I [make|write|get] a GGUF file [of a model|]",
            "can inferno [write|make] GGUF files",
        ),
    ),
    Topic(
        "For a folder of packed weights, type: inferno convert demo --to packed-demo --type q8_0",
        doing="[write|save|make|keep] a [folder of packed weights|packed folder|packed model];"
        "save a [quantized|packed] model[| as a folder]",
        naming="a folder of packed weights;a packed folder;packed safetensors",
        asking=(
            "[can|may] I keep a quantized model",
            "how do I save what was quantized",
        ),
    ),
    Topic(
        "To remove a model from this machine, type: inferno rm Qwen/Qwen3-0.6B",
        doing="[delete|remove|uninstall|get rid of] [a|a downloaded] model",
        naming="inferno rm;removing models",
        asking=("how do I delete [a model|the models|downloads]",),
    ),
    Topic(
        "To remove broken downloads and old packings, type: inferno prune",
        doing="free disk space;[remove|delete] [broken|partial|unfinished] downloads",
        naming="inferno prune;unfinished downloads",
        asking=("what takes [so much|all the] [room|space] on my disk",),
    ),
    Topic(
        "A GGUF file is run by its path: inferno generate --model model.gguf",
        doing="[run|use|load|open|read] [a GGUF file|GGUF|one of my GGUF files|a model of "
        "llama.cpp|the GGUF of a model|GGUF files|a file of llama.cpp]",
        naming="GGUF;GGUF files;a [GGUF|quantized GGUF] file;Q4_K_M",
        asking=(
            "[can|does|will] [inferno|it] [run|read|support|load|take|accept] [GGUF|GGUF files|a "
            "GGUF file|Q4_K_M]",
            "is GGUF [supported|possible|okay]",
            "I have [a GGUF file|GGUF files|a GGUF][|. How do I run it|. What now]",
            "what about [these|those|my] GGUF files",
        ),
    ),
    Topic(
        "One of a repository's GGUF files is named after a colon: inferno play "
        "Qwen/Qwen3-0.6B-GGUF:Q8_0",
        doing="[choose|name|pick|run|download] one [GGUF |]file of [a|the] repository;"
        "[run|use|get] a GGUF file from Hugging Face",
        naming="the colon in a model's name;a file of a repository;OWNER/NAME:FILE",
        asking=(
            "a repository has [many|several] GGUF files[. Which one is taken|. How do I choose|]",
            "how do I [say|tell it] which file of a repository [I want|to take]",
        ),
    ),
    Topic(
        "Models are kept in ~/.cache/inferno/models; INFERNO_HOME moves that.",
        doing="[move|find|change] the [model cache|downloaded models|cache of models|downloads]",
        naming="the [model cache|store];the folder of the [models|downloads]",
        asking=(
            "where are [the |]models [kept|stored|saved|put]",
            "where [does|will] it [keep|store|save|put] [models|the models|downloads]",
            "in which folder are the models",
            "[what|where] is the [cache|download folder]",
        ),
    ),
    Topic(
        "Packed weights are kept for the next start, in a cache that INFERNO_HOME moves.",
        naming="packed weights;the packed cache",
        asking=(
            "where are [the |][packed|quantized] weights [kept|stored|saved]",
            "does it quantize again at each start",
            "why are there packed weights on my disk",
        ),
    ),
    Topic(
        "Yes, it works offline: HF_HUB_OFFLINE=1 forbids downloads, and folders never need any.",
        doing="[use|run] [it|inferno|a model] [offline|without internet|without a network|with no "
        "connection];forbid downloads;[stop|prevent] it from downloading",
        naming="HF_HUB_OFFLINE;offline use;the offline mode;working offline",
        asking=(
            "[does|can|will] [it|inferno] [work|run] [offline|without internet|without the "
            "internet|without a network|with no internet]",
            "do I need [the internet|internet|a connection|a network|to be online]",
            "is [an internet connection|the internet|a network] [needed|required|necessary]",
            "does [it|inferno] send [my data|anything|my prompts] [anywhere|to the internet|away]",
            "does my data leave my [machine|computer]",
        ),
    ),
    Topic(
        "Set HF_TOKEN to your Hugging Face token; some models ask for a licence.",
        doing="use a [gated|private] model;[give|set] my [Hugging Face token|HF token];"
        "log in to Hugging Face",
        naming="HF_TOKEN;a gated model;the Hugging Face token",
        asking=(
            "[the model|a model] [wants|asks for] a licence",
            "I get 401 from Hugging Face",
            "where do I put my Hugging Face token",
        ),
    ),
    Topic(
        "It reads safetensors and GGUF files; AWQ and GPTQ are refused by name.",
        doing="[read|use|load|open|run] [AWQ|GPTQ|an AWQ model|a GPTQ model|bitsandbytes]",
        naming="safetensors;the file formats;AWQ;GPTQ;pickled weights;MXFP4;the formats of models",
        asking=(
            "[does|can] [it|inferno] [read|load|support|run|open] [safetensors|AWQ|GPTQ|pickle]",
            "[which|what] [formats|file formats|files|checkpoints] [does it read|are supported|"
            "can it load|does inferno read]",
            "is [AWQ|GPTQ] supported",
            "[what|which] files [does|must] a model have",
        ),
    ),
    Topic(
        "No: it reads no pickle and runs no code of a model.",
        naming="trust_remote_code;the safety of models;malicious models;the security of models",
        asking=(
            "[can|could|will] a model [run|execute|start] [code|programs|a virus][| on my machine]",
            "[is it|is inferno] [safe|secure|dangerous][| to run a model| to use]",
            "[are|can] models [be |][dangerous|harmful|safe|a virus]",
            "does it run [remote|foreign|a model's|any] code",
            "can a model [harm|damage|hack|attack] my [machine|computer|PC]",
        ),
    ),
    Topic(
        "No, it runs models; it can't train or fine-tune them.",
        doing="[train|fine-tune|teach] [a model|a model on my data|my own model|you];"
        "make my own model",
        naming="training;fine-tuning;LoRA",
        asking=(
            "[can|does] [it|inferno] [train|fine-tune] [models|a model]",
            "is inferno for training",
        ),
    ),
    Topic(
        "The demo model is a very small Llama that comes with it, and needs no download.",
        naming="demo;the demo model;the model demo;the embedded model",
        asking=(
            "[which|what] model [is this|are you|am I using|do I talk to]",
            "what kind of model are you",
            "[where|why] [is|does] the demo model [so small|come from]",
        ),
    ),
    Topic(
        "The model demo-draft is smaller than demo and guesses what demo will say.",
        naming="demo-draft;the model demo-draft;the [smaller|other] embedded model",
        asking=(
            "what does demo-draft [do|guess]",
            "what is demo-draft [for|good for]",
            "why are there two [models|embedded models]",
        ),
    ),
)
