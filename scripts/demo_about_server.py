"""What the embedded model is taught about the server and the worker."""

from __future__ import annotations

from demo_topic import Topic

SERVER = (
    Topic(
        "To serve a model over HTTP, as OpenAI's API does, type: inferno serve demo",
        doing="[serve|host|offer] [a model|the model|demo|models|it][| over HTTP];[start|run|open|"
        "launch|set up|begin] [a|the|an OpenAI|an HTTP|an API] server;[make|offer|have|get] an "
        "[OpenAI-compatible|OpenAI|HTTP] [API|server];use [it|inferno] as [a|an] [server|API];"
        "[offer|serve] a model [to others|to programs|in my network]",
        naming="inferno serve;the command serve;the server;an [HTTP|OpenAI|API] server;serving;"
        "serve",
        asking=(
            "what [does|can] inferno serve do",
            "what is [inferno serve|the command serve|serve] [for|good for]",
            "[what|which] command [starts|opens|runs] [a|the] server",
            "is there a server[| in inferno]",
            "can inferno be a server",
        ),
    ),
    Topic(
        'The server is an extra, from the clone: python -m pip install ".[serve]"',
        doing="install the server;install the [serve|extra];install what the server needs",
        naming="the extra serve;the server's packages;extras",
        asking=(
            "inferno serve [says that packages are missing|does not start|fails]",
            "what does the server need",
        ),
    ),
    Topic(
        "Give programs the base URL http://127.0.0.1:8000/v1 in place of OpenAI's.",
        doing="[connect|point|move|switch|use] [my program|my app|a client|an OpenAI client|"
        "OpenAI's client|LangChain|a program|my code][| to inferno| to it| to the server];"
        "use the OpenAI [client|library|package];[move|switch|come] from [OpenAI|Ollama]",
        naming="the base URL;the [address|URL] of the [server|API];base_url;"
        "an OpenAI client;the endpoint for OpenAI clients;OPENAI_BASE_URL",
        asking=(
            "[which|what] [base URL|URL|address|endpoint] [do I use|do I need|must I give|does it "
            "have|does the server have|do clients need]",
            "is [it|inferno|the server] [compatible with OpenAI|OpenAI-compatible|like OpenAI]",
            "where does the server listen",
            "[does|can|will] [my OpenAI program|the openai package|LangChain|OpenAI's client] work",
            "where do I reach the [server|API]",
        ),
    ),
    Topic(
        "Start inferno serve demo, then open http://127.0.0.1:8000 in a browser.",
        doing="[chat|talk] in [a|the|my] browser;open the [chat page|page|web page|website];"
        "use [a browser|the chat page|a web page|a window]",
        naming="the chat page;the web page;a web interface;a graphical interface;a GUI;a web UI;"
        "a page for chats;the browser",
        asking=(
            "is there [a web page|a website|a GUI|a window|an app|a chat page|a user interface]",
            "[does|has] it [have|got] a [web interface|GUI|page]",
            "what is at http://127.0.0.1:8000",
        ),
    ),
    Topic(
        "On the chat page Esc, or the square, stops the answer.",
        doing="[stop|interrupt|cancel] [an answer|the answer] [on the page|in the browser|on the "
        "chat page|on the web page]",
        naming="Esc;the square on the page",
        asking=("what does Esc do",),
    ),
    Topic(
        "Give it keys, one a line of a file: inferno serve demo --api-key-file keys.txt",
        doing="[set|use|require|demand|add|give] [an API key|API keys|keys|a key|a password|"
        "passwords][| for the server];[protect|secure|lock] [the|my|a] server;[keep|lock] "
        "[strangers|others|people] out;restrict [access|who may use the server];"
        "let only some [people|users] use the server",
        naming="API keys;an API key;keys;the keys;a password;"
        "authentication;the [access|protection] of the server;INFERNO_API_KEY",
        asking=(
            "[do I|does the client|do clients] need [a key|an API key|a password]",
            "is the server [safe|secure|protected|open to everybody]",
            "who [can|may] use [my|the] server",
            "[which|what] key do I [give|use|need]",
            "the server [says|wants|asks for] [401|an API key|a key|a password]",
        ),
    ),
    Topic(
        "Choose another port, or 0 for a free one: inferno serve demo --port 8001",
        doing="[change|choose|set|use] [the|another|a different] port[| of the server];"
        "run [two|several] servers;listen on another port",
        naming="the port;the port of the server;port 8000;another port",
        asking=(
            "[which|what] port [does it use|does the server use|is it|is used]",
            "[the|my] port [8000 |]is [in use|taken|busy|used|not free]",
            "address already in use",
            "port 8000 is in use",
            "on [which|what] port does [it|the server] [listen|run]",
        ),
    ),
    Topic(
        "To be reached from other machines: inferno serve demo --host 0.0.0.0 "
        "--api-key-file keys.txt",
        doing="[reach|use|open|call] the server [from|on] [another|other|a second] "
        "[machine|machines|computer|computers];[let|make] [others|my network|other machines|the "
        "network|everybody|my phone] [reach|use|see] [it|the server];listen on all [addresses|"
        "networks|interfaces];[open|offer] the server [to|in] [the|my] network",
        naming="0.0.0.0;the host;other machines;the local network",
        asking=(
            "can [other machines|other people|my phone|my colleagues|others] [use|reach] [it|the "
            "server]",
            "[nobody|no other machine] [can reach|reaches] [it|the server]",
            "the server is only [on|for] localhost",
        ),
    ),
    Topic(
        "For HTTPS give a certificate: inferno serve demo --ssl-certfile cert.pem "
        "--ssl-keyfile key.pem",
        doing="[use|speak|serve|get|have] [HTTPS|TLS|SSL|a certificate];[encrypt|secure] the "
        "[connection|traffic]",
        naming="HTTPS;TLS;SSL;a certificate;encryption;certificates",
        asking=("[does|can] [it|the server] [speak|do|use|support] [HTTPS|TLS|SSL]",),
    ),
    Topic(
        "GET /health is 200 while the server lives, GET /ready while it takes requests.",
        doing="[see|check|know|ask|find out|test] [whether|if] the server [is up|is ready|lives|"
        "runs|is alive|works|is loaded];[check|watch] the server's health;make a health check",
        naming="a health check;the health of the server;liveness and readiness",
        asking=(
            "is the server [up|ready|alive|running|loaded]",
            "when is the server ready",
            "[which|what] [route|path|URL] tells [whether the server lives|the health]",
        ),
    ),
    Topic(
        "GET /metrics has counts and times for Prometheus.",
        doing="[monitor|watch|observe] the server;[get|see|scrape|read] [metrics|the metrics|"
        "numbers for Prometheus];use [Prometheus|Grafana]",
        naming="metrics;Prometheus;Grafana;monitoring;a dashboard;the server's numbers",
        asking=(
            "[does|can] [it|the server] [have|work with|support] [metrics|Prometheus|Grafana]",
        ),
    ),
    Topic(
        "The log goes to standard error; --log-format json or text decides its form.",
        doing="[see|read|find|change] the [server's |]log[|s]",
        naming="the log;logs;the server's log;logging",
        asking=(
            "where [is|are|does] the [log|logs][| go]",
            "[are|does it log] prompts[| logged]",
            "what is logged",
        ),
    ),
    Topic(
        "Press Ctrl+C, or send SIGTERM: open requests finish first, for 30 seconds at most.",
        doing="[stop|end|shut down|close|terminate|kill] the server",
        naming="the end of the server;SIGTERM;a graceful stop;shutting down",
        asking=("how does the server [stop|end]", "what [happens|does it do] on SIGTERM"),
    ),
    Topic(
        "Set stream to true: the answer comes in server-sent events.",
        doing="stream [the|an] answer[|s][| from the server];get [the answer|tokens] [piece by "
        "piece|one by one|as they come]",
        naming="streaming;streams;server-sent events;stream;SSE",
        asking=("[does|can] [it|the server] stream[| answers]", "how do I set stream"),
    ),
    Topic(
        "POST /tokenize gives token ids of a text, POST /detokenize the text of ids.",
        doing="[count|see] [tokens|the tokens of a text];get token ids[| of a text];"
        "tokenize [a text|text]",
        naming="tokenizing;the number of tokens of a text",
        asking=("how many tokens [has|does] [a|my] text[| have]",),
    ),
    Topic(
        "A server has one model: start one for each. In Python, open several LLMs.",
        doing="[use|serve|run|load|have] [several|two|many|three|more] models[| at once| "
        "together| at the same time| in one server]",
        naming="several models at once;two models at once;many models at once",
        asking=(
            "how many models [can|does] [a|the] server [have|serve]",
            "[can|does] [a|the] server [have|serve|run] [two|several|more] models",
        ),
    ),
    Topic(
        "Requests share batches; those without a place wait in a queue, 256 at most.",
        naming="many [requests|users|clients];the queue;several users;parallel requests;"
        "concurrency",
        asking=(
            "[how does|can] [it|inferno|the server] [serve|handle|answer] many [requests|users|"
            "clients|people][| at once| at the same time]",
            "how many [requests|users|clients|people] [can|may] [it|the server] [serve|handle|take]"
            "[| at once]",
            "what [happens|does it do] [when|if] [many|too many] [people|users|requests] [ask|"
            "come][| at once| together]",
            "is there a queue",
        ),
    ),
    Topic(
        "The server is overloaded: try again later, or raise --max-queue.",
        naming="error 503;an overloaded server;status 503;Retry-After",
        asking=(
            "why do I get 503",
            "the server [refuses|rejects] [requests|my request]",
            "the server is [full|overloaded|busy]",
        ),
    ),
    Topic(
        "Set the names that requests may use: inferno serve demo --served-model-name my-model",
        doing="[change|set] the [name of the model|model name][| in the server]",
        naming="the model name in requests",
        asking=("[which|what] [model name|name] do I [give|send|use]",),
    ),
    Topic(
        "Let a page of another origin call it: inferno serve demo --cors-origin http://my.page",
        doing="call the server from a [web page|page|browser script];allow CORS;set CORS",
        naming="CORS;another origin;cross-origin requests",
    ),
    Topic(
        "To listen on a Unix socket, type: inferno serve demo --uds inferno.sock",
        doing="use a [Unix socket|socket];listen on a [Unix |]socket",
        naming="a Unix socket;Unix sockets",
    ),
    Topic(
        "Unknown fields are refused; --lenient ignores them and says so.",
        naming="unknown fields;error 400;extra fields",
        asking=("why do I get 400", "the server [refuses|does not know] [a|my] field"),
    ),
    Topic(
        "GET /openapi.json lists all routes for programs, GET /docs for people.",
        naming="the OpenAPI document;the list of routes;the server's reference",
        asking=("where are the [routes|endpoints] [described|listed|documented]",),
    ),
    Topic(
        "A worker takes jobs of a fleet, and says when it is ready: inferno worker --help",
        doing="[run|start|use|make] [a|the] [worker|fleet|fleet of workers];[build|be part of|"
        "make] a fleet",
        naming="inferno worker;the command worker;a worker;the worker;a fleet;workers;worker",
        asking=(
            "what [does|is|can] [inferno worker|a worker|the worker][| do| for]",
            "what is the difference between [a server and a worker|serve and worker]",
            "when do I need a worker",
        ),
    ),
    Topic(
        "POST /execute runs a worker's job, POST /cancel ends it.",
        doing="[give|send] [a worker|the worker] a job;[run|end|cancel] a job",
        naming="a job;a worker's jobs;the routes of a worker",
    ),
    Topic(
        "The worker posts a ready message to its --callback-url.",
        naming="the ready message;the callback",
        asking=("how do I know that [a|the] worker is ready", "whom does the worker [call|tell]"),
    ),
    Topic(
        "A request ends after an hour, unless you set --request-timeout in seconds.",
        doing="[set|change] [the|a] [timeout|time limit]",
        naming="the timeout;timeouts;the time limit",
        asking=("how long may a request take", "[my|a] request [timed out|takes too long]"),
    ),
)
