"""How people ask about the server, workers and answers with a shape, by the answers."""

from __future__ import annotations

SPOKEN_SERVER: dict[str, tuple[str, ...]] = {
    "To serve a model over HTTP": (
        "how do I [put|get|bring] [a|my|the] model [online|on the network|behind an API]",
        "I want an [API|endpoint|OpenAI server] of my own",
        "can [it|inferno] [pretend to be|stand in for|replace|imitate] OpenAI's [API|server]",
        "[which|what] command [opens|starts|launches] the [API|server|endpoint]",
        "I need [an API|an endpoint|a server] for my [app|website|team]",
        "[what|how] do I [type|do] to get [a|the|an HTTP] server [going|running|up]",
        "I want [a|an HTTP] server [running|going|up] [with demo|for the demo model|for my model]",
    ),
    "The server is an extra": (
        "it says that [uvicorn|FastAPI|fastapi] is [missing|not installed]",
        "inferno serve [says|tells me] something is not installed",
        "what must I [add|install] before I can serve",
    ),
    "Give programs the base URL": (
        "[which|what] address do I [put|write|type] into [my program|my app|the OpenAI "
        "client|LangChain]",
        "how do I [make|get] [the OpenAI package|openai-python|my app] [talk to|use] [it|my "
        "server]",
        "where [does|should] my [code|app|program] send its requests",
        "my [app|tool|editor] [asks for|wants] a base URL",
        "what do I put in place of api.openai.com",
        "my [program|app|script] [uses|speaks to|was made for] OpenAI. [Which|What] "
        "[URL|address|base URL] [now|do I give|does it need]",
        "which [URL|address] [replaces|do I use instead of] OpenAI's",
    ),
    "Start inferno serve demo, then": (
        "is there [something to click|a nice window|a user interface|an interface with a mouse]",
        "I don't like [terminals|the terminal][. Is there a page|. What else is there|]",
        "how do I [see|open|get] the [page|website] to [chat|talk]",
        "can I [chat|talk] in [Firefox|Chrome|a browser window]",
        "[can|could|may] I talk to [it|the model|you] [in|with] [my|a] browser",
    ),
    "On the chat page Esc": (
        "how do I [stop|break off] an answer [in|on] the [page|browser]",
        "[which|what] key stops it on the page",
    ),
    "Give it keys": (
        "[anybody|everyone|anyone] can use my server[. How do I change that|. Is that bad|]",
        "how do I [keep|shut] [strangers|others|people] out[| of my server]",
        "I want [a password|a login|a secret] for the server",
        "[who|which people] may use my server, and how do I [decide|control] [it|that]",
        "how does the server [know|tell] [friends|my users] from strangers",
        "can I [hand out|give out] keys to [my friends|users|my team]",
        "how do I [lock|guard] the server[| so that strangers stay out]",
        "only [some|a few|certain] people [may|should] [get in|use the server|come in]",
        "[nobody|no stranger] should [get in|use my server] without a key",
    ),
    "Choose another port": (
        "[something|another program] [sits|listens|runs] on port 8000[| already]",
        "it says the address is already in use",
        "[can|may] the server [listen|run] on [9000|8080|80|another number]",
        "[port 8000|that port|the port] is [blocked|busy|occupied|in use][. What can I do|. "
        "Which option helps|. How do I pick another|]",
        "two servers [want|fight for] the same port",
        "I need [the server on|] port [9000|8080|5000]",
        "[the|my|that] port is [taken|in use|not free|used by another program][. What now|. How "
        "do I take another|. Help]",
        "how do I [use|take|choose] [a different|some other|another] port",
    ),
    "To be reached from": (
        "only this machine can [reach|see] the server[. How do others|]",
        "how do I [open|show] the server to the [office|house|local network|others]",
        "can I use it from my [phone|tablet|other computer]",
        "it [answers|listens] only on localhost",
        "my [colleagues|friends|phone] should reach the server[. How|]",
    ),
    "For HTTPS give": (
        "nobody should [read along|listen in on] the [connection|requests]",
        "I have a [certificate|cert][. Where does it go|. How do I use it|]",
        "how do I get https in front of the address",
    ),
    "GET /health is 200": (
        "how does [Kubernetes|Docker|a monitor|the balancer] [know|see] that it [lives|is ready]",
        "which [path|route|URL] is for [health checks|probes|readiness]",
        "is there a [probe|ping|heartbeat][| for the server]",
        "how do I [see|know] that the server is [alive|still there|ready for requests]",
    ),
    "GET /metrics has counts": (
        "where [are|do I get] the [numbers|figures|counters] for [Grafana|a dashboard|Prometheus]",
        "how do I [watch|plot|graph] what the server does",
        "which [path|route] has the [counters|metrics]",
    ),
    "The log goes to": (
        "where does the server [write|tell] what it does",
        "can the log be JSON",
        "I see no log[| of the server]",
    ),
    "Press Ctrl+C, or send SIGTERM": (
        "how do I [switch|turn|take] [off|down] the server [cleanly|gently|without losing "
        "requests]",
        "what becomes of open requests when [I stop it|the server ends]",
    ),
    "Set stream to true": (
        "I want to see the words as they come[| from the server]",
        "can the server send [words|tokens|the answer] [bit by bit|one at a time|as they come]",
        "my [app|client] should show the answer while it is [written|made]",
    ),
    "POST /tokenize gives": (
        "how [many|do I count the] tokens [has|of] my text[| for the server]",
        "how do I turn [ids|tokens] [into|to] text again",
        "which route counts tokens",
    ),
    "A server has one model": (
        "how do I [serve|offer|host] [two|several|three] models[| side by side]",
        "can [one|the] server [switch|change] [models|between models]",
        "my users want to choose between [models|two models]",
        "is one server enough for [two|several|my three] models",
    ),
    "Requests share batches": (
        "[can|does] it [stand|handle|survive] [many|a crowd of|a hundred] [users|people|requests]",
        "what if [two people|everybody|ten users] [ask|come] at the same [time|moment]",
        "do [users|requests] [have to|need to] wait for each other",
        "what [happens|is done] when [everybody|the whole team|a whole class] [uses|asks] it at "
        "once",
        "what [happens|comes] when [lots of|very many|a hundred] [people|users] ask at once",
    ),
    "The server is overloaded": (
        "what does [429|503|too many requests] mean",
        "my client [gets|got|sees] [429|503][. Why|. What now|]",
        "it turns my requests away",
    ),
    "Set the names that requests": (
        "the client [sends|insists on] [another|the wrong] model name",
        "can the model have [an alias|another name|a nickname] [in|for] requests",
    ),
    "Let a page of another origin": (
        "my [web page|website|frontend] [may not|cannot|is not allowed to] call the server",
        "the browser [blocks|refuses] [the|my] request [because of CORS|from my page]",
    ),
    "To listen on a Unix socket": ("I don't want a port, but a [file|socket] to connect to",),
    "Unknown fields are refused": (
        "it says that a field is unknown",
        "my client sends [fields|extras] that the server doesn't know",
    ),
    "GET /openapi.json lists": (
        "where is the [description|schema|reference] of the [API|routes]",
        "which routes [are there|does the server have]",
    ),
    "A worker takes jobs": (
        "what is the worker command [for|good for]",
        "how do I [run|have] many [machines|servers] that take [jobs|work] from one place",
        "[when|why] would I [use|want|need] a worker",
    ),
    "POST /execute runs": ("how does a worker [get|receive] its work",),
    "The worker posts": ("how does my [system|program] know that a worker is ready",),
    "A request ends after": (
        "how long may a request [take|last|run]",
        "my long requests are [cut|ended] after an hour",
    ),
    "An answer can keep": (
        "can I [force|bind|limit] the answer to a [form|format|structure]",
        "how do I get answers [in a fixed form|that a program can trust]",
    ),
    "For JSON by a schema": (
        "[the answer|it|the output] [must|should|has to] be [valid JSON|JSON of a certain form]",
        "I have a JSON schema[. How do I use it|. What now|]",
        "how do I [force|make] it [to |][give|return|write] JSON",
    ),
    "For one of some words": (
        "it should [only|just] say yes or no",
        "I want [only|just] one of [these|two|three] words[| as the answer]",
        "can it [decide|choose] between [two|three] answers",
    ),
    "For a regular expression": (
        "the answer [must|should] be [a number|digits only|a date of digits]",
        "can I [bind|limit] the answer [to|by] a [pattern|regex]",
    ),
    "For a grammar": (
        "I [have|wrote] a grammar[. Can the answer follow it|. How do I use it|]",
        "[in which|which] notation [is|are|do I write] a grammar",
        "what [form|language|syntax] does a grammar have",
    ),
    "Set response_format": (
        "how do I ask the server for JSON",
        "does response_format [work|exist]",
        "how does my OpenAI client [get|ask for] structured output",
    ),
    "In Python: SamplingParams(structured": (
        "how do I give a schema in [Python|my code]",
        "can the LLM class [keep to|follow] a [schema|regex|grammar]",
    ),
    "Give tools in a chat": (
        "can it [call|use] [my functions|functions|tools]",
        "how do I [let|have] it [call|use] my [function|tool]",
        "does [function calling|tool use] work",
    ),
    "tool_choice is auto": (
        "it [should|must] [always|never] call a tool",
        "how do I [force|forbid] [it|the model] to [call|use] [tools|a function]",
    ),
    "No, demo calls no tools": ("can demo [use|call] [tools|functions]",),
    "Not yet": (
        "what can it not do[| yet]",
        "what is [still|] missing[| in inferno]",
        "does it make embeddings",
    ),
}
