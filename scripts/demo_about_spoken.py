"""More ways to ask about inferno, as people speak: by the beginning of the answer that they get."""

from __future__ import annotations

SPOKEN: dict[str, tuple[str, ...]] = {
    "Press Ctrl+C to stop": (
        "how [can|do] I [make|get] it [to |]shut up[| now| at once]",
        "[it|you|the model] [talks|goes] on and on[. How do I shut it up|. Make it stop]",
        "[what|which key] do I press [while|when] it is [still talking|still writing|answering]",
        "can I [cut it short|silence it|shut you up] [in the middle|before it ends|while it talks]",
    ),
    "Type /exit": (
        "[what|which key] [do|should] I press to [leave|quit|get out|get away|end the chat]",
        "how do I get out of [here|this|the chat|the program|this conversation]",
    ),
    "Type /reset": (
        "[make|let] [it|the model|you] forget [everything|all that|what] we [said|have said|wrote]",
        "[forget|wipe] [what we talked about|all we said|our talk]",
        "I want [to begin from nothing|an empty chat|a clean start]",
    ),
    "Type /save": ("how [can|could] I [keep|put] [what we said|our talk] [in|into] a file",),
    "Add --quantize": (
        "[which|what] [flag|option] [gives|makes|is for] [weights of|weights take] "
        "[four|eight|4|8] bits",
        "I want [the weights|a model] in [four|eight|4|8] bits",
    ),
    "int8 is nearly": (
        "[do|will] [the |][answers|texts|results] [get|become|be] [worse|bad|less good] "
        "[with|in|after] [int8|int4|quantization|four bits]",
        "is anything lost [with|by|when I use] [int8|int4|quantization|quantized weights]",
    ),
    "To serve a model over HTTP": (
        "[what|how] do I [type|do] to get [a|the|an HTTP] server [going|running|up]",
        "I want [a|an HTTP] server [running|going|up] [with demo|for the demo model|for my model]",
    ),
    "Give programs the base URL": (
        "my [program|app|script] [uses|speaks to|was made for] OpenAI. [Which|What] "
        "[URL|address|base URL] [now|do I give|does it need]",
        "which [URL|address] [replaces|do I use instead of] OpenAI's",
    ),
    "Give it keys": (
        "how do I [lock|close|guard] the server[| so that strangers stay out]",
        "only [some|a few|certain] people [may|should] [get in|use the server|come in]",
        "[nobody|no stranger] should [get in|use my server] without a key",
    ),
    "Choose another port": (
        "[the|my|that] port is [taken|in use|not free|used by another program][. What now|. How "
        "do I take another|. Help]",
        "how do I [use|take|choose] [a different|some other|another] port",
    ),
    "Models are kept": (
        "where [on my disk|on this machine] [are|do] [models|downloads|the models] [kept|go|land]",
        "where do [downloaded models|the downloads|models] [go|land|lie|live]",
        "in [which|what] [folder|place] do [downloads|models] [land|end]",
    ),
    "Yes, it is open source": (
        "under [which|what] licence [was|is] [it|inferno|the software] "
        "[released|given away|distributed|made public]",
        "[who|what] allows me to use this software",
    ),
    "If it is slow": (
        "[inferno|it|everything] is [awfully|terribly|really|painfully] slow. [Why|What is wrong|"
        "What is the reason|What can I do]",
        "what [could|may|can] be the [reason|cause] [when|if] [it|inferno] is [slow|so slow]",
    ),
    "To compare a model": (
        "I [ported|wrote|changed] a model. [Is it right|Are its numbers right|How do I check it]",
        "how can I see that [the|my model's] [numbers|maths|outputs] are [right|correct]",
    ),
    "You need Python": (
        "how [recent|old] [should|may] [Python|the Python] be",
        "[is|will] [my|an old] Python [new enough|too old]",
    ),
    "No: it reads no pickle": (
        "[could|can|might] a [downloaded |]model [run|hide|contain] [evil|bad|hostile] code",
        "[could|can] a model [do evil|do harm|spy on me][| on my computer]",
    ),
    "The model demo-draft": (
        "what is [the second|the other|that tiny|the smaller] model [for|good for]",
        "[why|for what] is there a [second|tiny|smaller] model[| beside demo]",
    ),
    "The KV cache gets half": (
        "what [sets|decides] the size of the cache for keys and values",
        "who decides how big the cache is",
    ),
    "A Mac's GPU": (
        "[does|would|will] it use the [GPU|chip|graphics card|graphics] of [my|a] [Mac|MacBook]",
        "my MacBook has a [good GPU|fast chip]. Is it used",
    ),
    "No GPU is needed": (
        "[does|will|would] this [thing|program|work] [run|work] on a [laptop|PC] "
        "[without a GPU|that has no GPU|with no graphics card]",
    ),
    "Set the most new tokens": ("the answers are [far too long|endless][|. Make them short]",),
    "For the likeliest tokens": ("[it|the model] [should|must] be less [wild|surprising]",),
    "Give them together": (
        "I have [a thousand|hundreds of|many|a file of] prompts[| in a file][. What now|. How]",
    ),
    "Type /help in the chat": ("where are [the|all the] options", "which options are there"),
    "To chat with a model": ("[explain|show me] how to [launch|open|begin] [the|a] chat",),
    "Give its folder": (
        "how do I [run|use|load] [my own|another|a different] model",
        "what should I type to run [a|my|another] model",
    ),
    "To let the model answer": ("how do I ask [one|a] question [from|in] the shell",),
    "To see the memory": ("which command shows the [RAM|memory] of a model",),
    "To see what a model is": ("show me the licence of a model", "which licence has a model"),
    "For the same text": ("I want the [very same|identical] [text|words] [again|each time]",),
    "Start inferno serve demo, then": (
        "[can|could|may] I talk to [it|the model|you] [in|with] [my|a] browser",
    ),
    "Requests share batches": (
        "what [happens|comes] when [lots of|very many|a hundred] [people|users] ask at once",
    ),
    "A server has one model": ("is one server enough for [two|several|my three] models",),
    "To be reached": ("my [colleagues|friends|phone] should reach the server[. How|]",),
}
