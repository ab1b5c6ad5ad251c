"""What the embedded model is taught about chats, answers and scripts."""

from __future__ import annotations

from demo_topic import Topic

CHAT = (
    Topic(
        "Press Ctrl+C to stop an answer; what came of it stays in the conversation.",
        doing="[stop|interrupt|cancel|break off|cut off|abort|end|halt|pause|kill] [an answer|the "
        "answer|your answer|the model|generation|the output|you|it|a story|a reply|the text];"
        "stop [it|you|the model] from [talking|writing|answering|going on];"
        "make [it|you|the model] [stop|be quiet|stop talking|stop writing]",
        naming="Ctrl+C;stopping an answer;interrupting;the key that stops an answer",
        asking=(
            "what does Ctrl+C do",
            "[what|which] key [stops|interrupts|cancels|ends] [an answer|the answer|it|the model]",
            "[it|the model|the answer] [does not stop|never ends|goes on and on|won't stop|is too "
            "long|talks too much][|. What now|. What can I do]",
            "the answer is [boring|wrong], how do I stop it",
            "can I stop [you|it] [while you talk|in the middle|early|before the end]",
        ),
    ),
    Topic(
        "Type /exit, or press Ctrl+D, to leave the chat.",
        doing="[leave|exit|quit|close] [|the chat|inferno play|this chat|play|the conversation|the "
        "program];[get|go|come] out[| of here| of the chat| of it];end [the|this] "
        "[chat|conversation|program];[stop|finish] [chatting|the chat]",
        naming="/exit;/quit;Ctrl+D",
        asking=(
            "[what does /exit do|what is /exit|what is /exit for|and /exit|what does /quit do]",
            "what does Ctrl+D do",
            "how do I get back to the shell",
            "I want to go[| now], how[| do I leave]",
        ),
    ),
    Topic(
        "Type /reset to start a new chat.",
        doing="[start over|reset [the|this] [chat|conversation]|clear the chat|start a new chat|"
        "begin again|begin anew|start again];[forget|clear|delete|drop] [everything|the "
        "conversation|what I said|the history|this chat|all];make [you|it|the model] forget[| "
        "everything| the chat| what I said];have a fresh start",
        naming="/reset;a new [chat|conversation];a fresh start",
        asking=(
            "[what does /reset do|what is /reset|what is /reset for|and /reset]",
            "[can you|please] forget [everything|this|what I said]",
        ),
    ),
    Topic(
        "Type /save chat.md to save the chat as a file.",
        doing="[save|keep|store|export|write down] [the chat|this chat|our chat|the conversation|a "
        "chat|what we said];[save|write] [it|the chat|this] [to|as|in] a file;"
        "get the chat as [Markdown|JSON]",
        naming="/save;saving a chat;a transcript",
        asking=("[what does /save do|what is /save|what is /save for|and /save]",),
    ),
    Topic(
        "Type /retry to get another answer.",
        doing="[get|have] [another|a different|a new|a better] answer;[try again|retry|ask again];"
        "repeat [the|my] question;let it answer again",
        naming="/retry;another answer;a second try",
        asking=(
            "[what does /retry do|what is /retry|what is /retry for|and /retry]",
            "I don't like the answer",
        ),
    ),
    Topic(
        "Type /set to change a setting, for instance /set temperature 0.",
        doing="[change|set|see|show] [the|a] [settings|setting][| in the chat];"
        "change [an option|a setting] [in|during] [a|the] chat",
        naming="/set;the settings[| of the chat]",
        asking=("[what does /set do|what is /set|what is /set for|and /set]",),
    ),
    Topic(
        'Type /system and a text, or start with a prompt: inferno play demo --system "Be brief."',
        doing="[set|change|give|write|use] [the|a] system prompt;tell the model how to behave;"
        "give it a role;give the model instructions",
        naming="/system;the system prompt;a system prompt",
        asking=("[what does /system do|what is /system|what is /system for|and /system]",),
    ),
    Topic(
        "Type /stats to see tokens, speed and memory.",
        doing="[see|show] [the speed|statistics|how fast it is|the numbers|how fast you are];"
        "see [the number of tokens|how many tokens I used|the memory] in the chat",
        naming="/stats;the statistics",
        asking=(
            "[what does /stats do|what is /stats|what is /stats for|and /stats]",
            "how fast [are you|were you|was that answer]",
            "what is your speed",
        ),
    ),
    Topic(
        "Type /trim to drop the oldest turns, or /reset to begin anew.",
        doing="[make|get|free] [room|space] in the context;drop [old|the oldest] [turns|messages];"
        "[go on|continue] when the context is full;shorten the conversation;"
        "get rid of old messages",
        naming="/trim;a full context;the full context;a message that was refused",
        asking=(
            "[what does /trim do|what is /trim|what is /trim for|and /trim]",
            "[the|my] [context|conversation|chat] is [full|too long|too big][|. What now]",
            "what [happens|can I do|do I do|now] [if|when] the context is full",
            "my message was refused",
            "the chat [says|tells me|complains] the context is full",
        ),
    ),
    Topic(
        "End a line with a backslash, or press Alt+Enter, to go on in a new line.",
        doing="[write|send|type|enter] [several|many|more|two] lines;make a [new line|line break];"
        "[write|type] a long message",
        naming="Alt+Enter;a new line;messages of several lines",
    ),
    Topic(
        "The messages that you type are kept in a history file; the answers are not.",
        naming="the history file;my [old|earlier] messages;what is kept of a chat",
        asking=(
            "[are|is] [my messages|my chats|what I type|the history] [kept|stored|saved|logged]",
            "where is the history",
            "[does|will] it remember my messages",
        ),
    ),
    Topic(
        "For the likeliest tokens, without chance, type: inferno play demo --temperature 0",
        doing="[change|set|lower|raise|choose] the temperature;make [it|the answers|the model|the "
        "output] [less|more] [random|creative|wild|surprising];[get|have] less chance;"
        "use greedy [sampling|decoding|search];switch [off chance|sampling off]",
        naming="the temperature;greedy sampling;randomness;temperature 0",
        asking=(
            "what does [the |]temperature [do|mean|change]",
            "[which|what] temperature [should I use|is best|is good]",
            "the answers are too [random|wild|strange|creative]",
        ),
    ),
    Topic(
        "For the same text each time, use --temperature 0 or --seed 1.",
        doing="[get|have] the same [text|answer|output|result|tokens][| again| each time| every "
        "time| twice];make [it|the output|results|runs] [repeatable|reproducible|deterministic];"
        "[repeat|reproduce] [a result|an answer|an output];set [a|the] seed",
        naming="the seed;a seed;reproducible results;determinism",
        asking=(
            "why do two runs differ",
            "why is [the text|the answer|the output|it] [different|another] [each|every] time",
            "why does it [say|write|give] something else [each|every] time",
            "is the output [always|ever] the same",
            "[is it|is inferno] deterministic",
        ),
    ),
    Topic(
        "Set the most new tokens: inferno generate --prompt Hello --max-tokens 40",
        doing="[limit|shorten|restrict|cut] [the answer|answers|the output|the text|the length|the "
        "length of the answer];get [shorter|longer] [answers|texts|output];set the "
        "[maximum|most|number of] [new |]tokens;make [it|the answers|the text] "
        "[shorter|longer];let it write more",
        naming="max_tokens;the length of [the answer|the output|answers];the limit of tokens",
        asking=(
            "how long [is|can be|may be] an answer",
            "[the text|the output|the answer|it] [ends|stops|is cut|breaks off] [in the middle of "
            "a sentence|too early|too soon|in the middle]",
            "why [is|does] [the output|the text|it] [end early|cut|so short|stop in the middle]",
            "the answers are too [short|long]",
        ),
    ),
    Topic(
        "Give a text that ends the output: inferno generate --prompt Hello --stop END",
        doing="[stop|end] at a [word|text|certain word];[use|set|give] a stop [text|word|string]",
        naming="a stop [text|word|string|sequence];stop strings",
    ),
    Topic(
        "Give them together, one a line: inferno generate --prompts-file prompts.txt",
        doing="[give|run|send|use|complete|process] [many|several|hundreds of|a lot of|lots of|a "
        "file of|a list of] prompts[| at once| together];[read|take] prompts from a file;"
        "[process|complete] a file of prompts",
        naming="many prompts;a file of prompts;batch processing;a batch of prompts",
        asking=(
            "many prompts take [very long|too long|long]",
            "[can|does] it take [a file of prompts|several prompts|a list of prompts]",
        ),
    ),
    Topic(
        "For one JSON object a line, type: inferno generate --prompt Hello --json",
        doing="[get|print|have|write|see] [JSON|the output as JSON|JSON output|results as JSON];"
        "[parse|read] the output [in a script|in a program|with a program]",
        naming="JSON output;the objects of --json;a machine-readable output",
        asking=(
            "[can|does] it [print|write|give|output] JSON",
            "[is there|I need] [a JSON output|JSON|JSON output]",
            "[which|what] [option|flag] is for [scripts|programs|machines]",
        ),
    ),
    Topic(
        "Give - as the prompt to read standard input: inferno generate --prompt -",
        doing="[read|take|pipe] [the prompt|a prompt|text] [from|into|through] [standard input|a "
        "pipe|stdin|it];use a pipe;pipe text into it",
        naming="standard input;stdin;a pipe;pipes",
    ),
    Topic(
        "To see what the engine chooses, add --verbose; --debug shows tracebacks.",
        doing="[see|get|show] [more messages|a traceback|tracebacks|what the engine does|more "
        "details|details];debug [an error|a problem|inferno]",
        naming="a traceback;tracebacks",
        asking=("where does [an|the|this] error come from", "[I got|there was] an internal error"),
    ),
    Topic(
        "The exit code is 0, or 1 after an error, or 2 after a wrong option.",
        naming="the exit code;exit codes;exit code [1|2]",
        asking=("what does exit code [0|1|2] mean", "what does it return to the shell"),
    ),
    Topic(
        "Against repetition use --repetition-penalty 1.1 or --temperature 0.7.",
        doing="[stop|prevent|avoid] [repetition|repetitions|it from repeating itself|loops]",
        naming="the repetition penalty;repetitions",
        asking=(
            "[it|the model] [repeats itself|says the same again and again|repeats]",
            "why does [it|the model] repeat itself",
        ),
    ),
    Topic(
        "Keep only likely tokens with --top-k, --top-p or --min-p.",
        naming="top-k;top-p;min-p;nucleus sampling;sampling",
        asking=("what does [top-p|top-k|min-p] do",),
    ),
)
