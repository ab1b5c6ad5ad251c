"""How people ask what inferno is, to set it up and for its commands, by their answers."""

from __future__ import annotations

SPOKEN_START: dict[str, tuple[str, ...]] = {
    "Inferno is a Python package": (
        "what have I installed[| here]",
        "I [stumbled over|found|came across] inferno[. What does it do|. What is that]",
        "[in a nutshell|in short|briefly], what does this [software|program|project] do",
        "what sort of thing is inferno, [a game|a library|a service|an app]",
    ),
    "It is for people": (
        "who [would|could] [profit|benefit] from [it|inferno]",
        "[which|what] people is [it|inferno] [made|meant|built] for",
        "am I [the right person|in the right place] for this",
    ),
    "Inferno runs Llama": (
        "will my [Llama|Qwen|Mistral|Mixtral|gpt-oss] [model|] [work|run] with [this|it]",
        "do you [handle|speak|understand] [Llama|Qwen|Mistral] models",
        "I have [a Qwen|a Llama|a Mistral] model[. Will it run|. Can I use it]",
        "what can I [feed|give] to [it|inferno][, which models|]",
    ),
    "Clone the repository": (
        "how do I [put|get] [it|inferno|this] [onto|on] my [machine|computer|laptop]",
        "what are the steps [of|for] the [set-up|installation]",
        "walk me through the [installation|set-up]",
        "I [cloned|have cloned] the repository[. What next|. And then|. What comes next]",
        "where do I begin if I have nothing [installed|] yet",
    ),
    "Its package is named": (
        "why [did|does] pip [give|fetch|bring] me another [program|package]",
        "I typed pip install inferno and got something [odd|strange|else]",
        "under which name is it [published|on PyPI|found by pip]",
        "is there [another|a second] [project|package] with this name",
    ),
    "Install PyTorch's CPU build": (
        "why does it [fetch|download|install] [gigabytes|so much|five gigabytes|all this CUDA]",
        "the [installation|download] is [huge|enormous|too big|several gigabytes]",
        "I don't [want|need] [CUDA|the GPU packages|NVIDIA packages][| on my disk]",
        "how do I keep the [installation|download] small",
    ),
    "You need Python 3.11": (
        "does it [run|work] [on|under] [Windows|Linux|macOS|Ubuntu|Debian]",
        "is Python [3.9|3.10|3.8|2] [enough|good enough|fine|too old]",
        "which Python [does it want|must I have|should be there]",
        "what must be [there|installed] before I begin",
        "which [systems|operating systems] is it [tested|tried] on",
        "how [recent|old] [should|may] [Python|the Python] be",
        "is [my|an old] Python [new enough|too old]",
    ),
    "Yes, it is open source": (
        "[may|can] [my company|a company|we|I] use it [at work|in a product|commercially|for "
        "money]",
        "does it cost [anything|money|something]",
        "[may|can] I [see|read|change|copy|modify] the source[| code]",
        "what are the terms of [use|its use]",
        "under [which|what] licence [was|is] [it|inferno|the software] [released|given "
        "away|distributed|made public]",
        "[who|what] allows me to use this software",
    ),
    "To generate text, type": (
        "[how|what do I type] to [complete|continue|go on with] a [sentence|beginning|text]",
        "I [have|wrote] the beginning of a [text|story]. [Let it go on|How do I let it go on]",
        "how do I get [some text|a few sentences] out of [it|the model]",
        "let the model [write|continue] something [from|in] the shell",
    ),
    "To let the model answer": (
        "it [just|only] [continues|completes] what I [wrote|typed][. I want an answer|]",
        "how do I [pose|put|send] one question without [opening|starting] a chat",
        "can I get a single answer [without|outside of] the chat",
        "how do I ask [one|a] question [from|in] the shell",
    ),
    "To chat with a model": (
        "I want to [have a talk|talk a bit|converse|talk to it]",
        "where can I [talk|chat|speak] to [it|the model] in [the|a] terminal",
        "how do I get into [a|the] [conversation|dialogue]",
        "[explain|show me] how to [launch|open|begin] [the|a] chat",
    ),
    "To check your machine": (
        "it [crashes|fails|breaks][| all the time| at the start][. What should I look at|. Help]",
        "nothing works[| here][. Where do I look|. What now]",
        "how can I tell whether my [machine|computer|set-up] is [all right|healthy|up to it]",
        "I want to [file|write|send] a bug report",
        "what does it [say|know|find] about my [hardware|machine]",
    ),
    "To check a model's files": (
        "are the files of my model [okay|intact|fine]",
        "the answers of my model are [garbled|full of odd tokens][. Is its template wrong|]",
        "how do I [see|learn|know] whether the [tokenizer|template] of a model is sane",
        "something is [odd|off] with the [template|tokenizer|files] of my model",
    ),
    "To compare a model": (
        "I [ported|implemented|built|converted] a [network|model] myself[. Is it right|. Are the "
        "numbers right]",
        "how do I [prove|make sure|convince myself] that the [maths|numbers|layers] [are|is] right",
        "[which|what] layer [differs|is off|has the mistake|computes nonsense]",
        "how do I compare [it|my model|the logits] with [transformers|a reference|another program]",
        "can I [trust|rely on] the [numbers|results|logits]",
        "are the results of my [model|port] [correct|the same as those of transformers]",
        "I [ported|wrote|changed] a model. [Is it right|Are its numbers right|How do I check it]",
        "how can I see that [the|my model's] [numbers|maths|outputs] are [right|correct]",
    ),
    "To measure speed on": (
        "how many tokens [can|does|will] my [laptop|machine|computer] [make|do|manage] a second",
        "is there a [speed test|way to time it|stopwatch]",
        "how [quick|fast] will it be [here|on this box]",
        "I want [figures|numbers] of the speed",
    ),
    "To measure many requests": (
        "how many tokens a second do I get from a [whole batch|hundred prompts at once]",
        "which command [times|measures] [a batch|many prompts at once|the throughput]",
    ),
    "To time a server's streams": (
        "how does my server [behave|do|hold up] under [load|pressure|many clients]",
        "I want to put [load|stress|pressure] on [my|the] server",
        "how long do clients wait for their [first|next] token",
    ),
    "To see the version": (
        "[how old|how new|which release] is [it|this program|this inferno]",
        "which [release|version] do I [have|run|use]",
        "where does it say its version",
    ),
    "Type /help in the chat": (
        "I [am|feel] lost[. Where is help|. What can I type]",
        "what can I [type|enter] here",
        "where do I find [all|the] [commands|options|switches]",
        "is there a list of [commands|options]",
        "where are [the|all the] options",
        "which options are there",
    ),
    "For the tab key": (
        "the tab key does nothing[| in my shell]",
        "can my shell [finish|complete] the [commands|options] for me",
    ),
    "Give its folder": (
        "I [don't want|am tired of] demo[. How do I take another model|]",
        "how do I tell it which model to [use|take|run|load]",
        "my model [lies|is] in a folder[. How do I run it|. What now]",
        "can it run something [bigger|better|larger] than demo",
        "demo is too [small|stupid|simple]. [What else is there|How do I get a better one]",
        "how do I [run|use|load] [my own|another|a different] model",
        "what should I type to run [a|my|another] model",
    ),
    "To download a model": (
        "how do I [get|bring|pull] [Qwen|Qwen3|Llama|a model] onto [my|this] [machine|disk]",
        "where do I get a [real|bigger|good] model",
        "[fetch|get|pull] a model from Hugging Face",
        "I want to have the model here before I start",
    ),
    "To see which models are": (
        "what is [already|] on my disk[, which models|]",
        "which models did I [download|fetch]",
        "what models are already [there|downloaded|here]",
        "is there a list of my models",
    ),
    "To see what a model is": (
        "how many [layers|parameters|heads] does [a|the|my] model have",
        "what is [written|] in the config of a model",
        "who [owns|made] a model, and [under|with] which licence",
        "show me the [tensors|layers|config|template] of a model",
        "show me the licence of a model",
        "which licence has a model",
    ),
    "To see the memory": (
        "is my [machine|laptop|RAM] [big|large] enough for [it|Qwen3-8B|a model]",
        "how do I know [beforehand|before I load it] [if|that] it will fit",
        "does [Qwen3-8B|a model|a big model] fit [in|into] [8|16|my] [GB|gigabytes]",
        "[would|will] [Qwen|Llama|it] fit on [this|my] [machine|laptop]",
        "what would a model take [of my memory|in RAM]",
        "which command shows the [RAM|memory] of a model",
    ),
    "To write a model as": (
        "how do I [make|build|write|produce] a file [for|that works in|for people with] llama.cpp",
        "I want to [give|send] my model to [a friend who uses llama.cpp|llama.cpp|Ollama]",
        "can I turn [safetensors|my model] into [a GGUF|GGUF|one file]",
        "which [option|switch|key|command] [makes|writes|produces] a GGUF",
    ),
    "For a folder of packed": (
        "I want to [keep|store] the [quantized|packed|int8] [model|weights] [as a folder|for "
        "later]",
        "can it [write|store|put] quantized weights into a [folder|directory]",
        "how do I [make|write|store] a [packed|quantized] [folder|directory]",
    ),
    "To remove a model": (
        "I don't [need|want] [a|this|that] model any more",
        "how do I get a model off my [disk|machine]",
        "[throw|take] a model away",
    ),
    "To remove broken": (
        "my disk is [full|nearly full][. What can go|. Help]",
        "a download [broke|was cut off|failed] and [left|leaves] [files|rubbish] behind",
        "clean up [the disk|old files|what is left of downloads]",
    ),
    "A GGUF file is run": (
        "[may|could|can] I [hand|feed|show|give] it [a|my|one of these|one of my] "
        "[GGUF|GGUFs|GGUF files]",
        "my models are in GGUF[. Is that a problem|. Does that work|]",
        "I come from [llama.cpp|Ollama] with my [GGUF|files|models]",
        "does it [eat|take|swallow] Q4_K_M",
    ),
    "Models are kept": (
        "where [are|is|do I find] [what|the files that|the models that] [I|it] downloaded",
        "[which|what] [directory|folder|place] [holds|has|keeps] [the|my|downloaded] models",
        "where [on the disk|in my home|on this computer] [is|are] the [files|models|downloads] "
        "[kept|put|saved]",
        "my [home|disk] is small. [Can models lie elsewhere|How do I put models elsewhere]",
        "what does INFERNO_HOME [do|mean|change]",
        "to which [place|path|directory] does it download",
        "where [on my disk|on this machine] [are|do] [models|downloads|the models] [kept|go|land]",
        "where do [downloaded models|the downloads|models] [go|land|lie|live]",
        "in [which|what] [folder|place] do [downloads|models] [land|end]",
    ),
    "Packed weights are kept": (
        "why is the second start [faster|quicker]",
        "does it [pack|convert] the weights [again|anew] [each|every] time",
    ),
    "Yes, it works offline": (
        "I [am|sit] [on a train|in the woods|on a ship|in a plane] [without|with no] "
        "[internet|network][. Does it work|]",
        "does it [call|phone] home",
        "what if there is no [network|internet|connection]",
        "[must|do] I have to be online",
        "how do I [keep|stop] it from [going|looking] online",
    ),
    "Set HF_TOKEN": (
        "the model is [gated|private|locked|behind a licence][. How do I get it|]",
        "Hugging Face [says|answers] [401|403|access denied|that I may not have it]",
        "where do I put my [Hugging Face|] [token|login]",
        "how do I log in [to|at] Hugging Face",
    ),
    "It reads safetensors": (
        "which file [formats|types] [does it take|can I give it|are fine]",
        "I have [an AWQ|a GPTQ|a bitsandbytes] [model|file][. Does it run|]",
        "in [what|which] format should a model be",
    ),
    "No: it reads no pickle": (
        "is it [safe|dangerous|risky] to [run|load|try] a model of [a stranger|somebody else]",
        "[can|could] a [model|file] [attack|infect|hack|harm] my [computer|machine]",
        "does it [run|execute] [code|scripts] [from|of|in] [the hub|a model|model files]",
        "what about trust_remote_code",
        "[could|can|might] a [downloaded |]model [run|hide|contain] [evil|bad|hostile] code",
        "[could|can] a model [do evil|do harm|spy on me][| on my computer]",
    ),
    "No, it runs models": (
        "[can|could] I [teach|train] [it|a model|you] [something|my own texts|new things]",
        "is there a way to fine-tune[| with my data]",
        "does it [do|have|support] [LoRA training|training|learning]",
    ),
    "The demo model is": (
        "what is [demo|this demo|the built-in model|the model that comes with it]",
        "who are you[, which model|]",
        "how [big|large|clever] is [demo|the demo model|the embedded model]",
        "why is there a model in the package",
    ),
    "The model demo-draft": (
        "what does demo-draft [do|mean]",
        "[why|for what] [are there|do you ship] two [models|demo models]",
        "what is [the second|the other|that tiny|the smaller] model [for|good for]",
        "[why|for what] is there a [second|tiny|smaller] model[| beside demo]",
    ),
}
