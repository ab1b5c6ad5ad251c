"""What the embedded model is taught about answers with a shape and about calls of tools."""

from __future__ import annotations

from demo_topic import Topic

SHAPES = (
    Topic(
        "An answer can keep to a JSON Schema, a regular expression, choices or a grammar.",
        doing="[get|force|use|have|ask for] [structured output|structured answers|answers with a "
        "shape|an answer with a shape];[constrain|shape|guide] [the|an] [answer|output];"
        "make the [answer|output] keep to a [format|shape];use guided decoding",
        naming="structured output;structured outputs;answers with a shape;guided decoding;"
        "constrained decoding;the shape of an answer",
        asking=(
            "[does|can] [it|inferno] [support|do|have] [structured output|guided decoding]",
            "[can|may] an answer have a [shape|fixed form|format]",
            "[which|what] shapes can an answer have",
        ),
    ),
    Topic(
        "For JSON by a schema, type: inferno generate --prompt Hello --json-schema schema.json",
        doing="[use|give|follow|keep to] a [JSON schema|JSON Schema|schema];[get|have|force] "
        "JSON [by|with|that fits|after] a schema;force the model to write valid JSON;"
        "make it [fill|keep to] my schema",
        naming="a JSON schema;JSON Schema;JSON by a schema;valid JSON",
        asking=(
            "[can|does|will] the answer [fit|match|follow|keep to] [a|my] schema",
            "how [can|do] I make sure that the [answer|output] is valid JSON",
            "the model writes [broken|wrong|invalid] JSON",
            "I have a schema[|. How do I use it|. What now]",
            "is the JSON [always|ever] valid",
        ),
    ),
    Topic(
        "For one of some words, type: inferno generate --prompt Hello --choice yes --choice no",
        doing="[choose|pick|answer] [between|from|one of] [some|two|three|a few|given] "
        "[words|texts|answers|choices];get only yes or no;[force|let] it [say|answer] [only |]"
        "yes or no;[limit|restrict] the answer to [some|a few|certain] words;"
        "[classify|label|sort] texts",
        naming="choices;a choice of words;a fixed list of answers",
        asking=(
            "[can|could] it [say|answer] only yes or no",
            "the answer [must|should] be one of [two|three|some|these] words",
            "I want [one of three words|only yes or no|a label] as the answer",
            "how do I make it a classifier",
        ),
    ),
    Topic(
        'For a regular expression, type: inferno generate --prompt Hello --regex "[0-9]+"',
        doing="[use|give] a [regular expression|regex|pattern];make the [answer|output] match a "
        "[pattern|regex|regular expression];get [only |]a [number|date|phone number|year]",
        naming="a regular expression;regular expressions;a regex;a pattern for the answer",
        asking=(
            "[can|does] the answer [match|follow] a [pattern|regex|regular expression]",
            "the answer [must|should] be [a number|a date|digits only]",
            "I want [only digits|just a number|a date] as the answer",
        ),
    ),
    Topic(
        "For a grammar, type: inferno generate --prompt Hello --grammar rules.lark",
        doing="[use|give] a [grammar|context-free grammar|Lark grammar];make the [answer|output] "
        "keep to a grammar;get [an expression|a program|a command] by a grammar",
        naming="a grammar;a context-free grammar;Lark;Lark's notation;grammars",
        asking=(
            "[does|can] it [take|use|read|support] [a grammar|grammars|Lark]",
            "[which|what] notation [do grammars have|does a grammar have]",
        ),
    ),
    Topic(
        "Set response_format, as OpenAI's clients do, or structured_outputs in the request.",
        doing="[set|use] response_format;[get|ask for] [JSON|a schema|a shape|structured output] "
        "from the server;use [structured output|a schema|a regex] [in|with] [a request|the server|"
        "OpenAI's client|the API]",
        naming="response_format;structured_outputs;json_object;structured output of the server;"
        "the JSON mode;JSON mode",
        asking=(
            "[does|can] the server [do|support|take] [structured output|response_format|schemas]",
            "[which|what] field [asks for a shape|sets the shape|takes a schema]",
            "[does|will] chat.completions.parse work",
        ),
    ),
    Topic(
        "In Python: SamplingParams(structured=StructuredOutput(json=schema))",
        doing="[use|get] [structured output|a schema|a regex|a choice|a grammar] in Python",
        naming="StructuredOutput;the class StructuredOutput;structured output in Python",
        asking=("what does StructuredOutput do", "how do I give a schema in Python"),
    ),
    Topic(
        "Give tools in a chat request: the answer has tool_calls, if the model's template takes "
        "tools.",
        doing="[use|call|define|give|offer] [tools|functions|a tool|a function];use [function|tool]"
        " calling;let the model [call|use] [tools|functions|my functions|a function]",
        naming="tool calls;function calling;tool calling;tools;calls of tools;tool_calls;"
        "functions that the model calls",
        asking=(
            "[does|can] [it|inferno|the server] [support|do|take|know] [tools|function calls|tool "
            "calls|function calling]",
            "[can|could] the model call [my|a] function",
            "where do I [give|put|define] [tools|my tools|functions]",
            "[can|could] I build an agent",
        ),
    ),
    Topic(
        "To try tools by hand, type: inferno play Qwen/Qwen3-0.6B --tools tools.json",
        doing="[try|test] [tools|my tools|calls of tools|a tool][| by hand| in a chat];use tools "
        "in [inferno play|the terminal|the chat]",
        naming="play with tools;tools in the terminal",
        asking=(
            "[can|could] I [try|test|see] [tool calls|calls of tools] without [a program|code]",
            "how do I see the calls of a model in the chat",
        ),
    ),
    Topic(
        "tool_choice is auto, none, required, or names the tool that must be called.",
        doing="[force|forbid|require] [a tool call|tools|a call of a tool];set tool_choice;"
        "make the model call a [certain|given] tool",
        naming="tool_choice;the field tool_choice;the choice of a tool",
        asking=(
            "[which|what] values [does|can] tool_choice [have|take]",
            "what [does|is] tool_choice[| do]",
            "what [can|may] tool_choice be",
            "must the model call a tool",
        ),
    ),
    Topic(
        "No, demo calls no tools: serve a model whose chat template takes them, such as Qwen3.",
        doing="use tools with [demo|the demo model]",
        naming="a model that calls tools;models for tools",
        asking=(
            "[can|does] [demo|the demo model] [call|use|take|know] [tools|functions]",
            "[which|what] model[|s] [can|should] [call|take|use|I take for] tools",
            "why does demo call no tools",
        ),
    ),
    Topic(
        "Not yet: embeddings, several GPUs for one model, and weights in AWQ or GPTQ.",
        naming="what is missing;embeddings;the limits of inferno;several GPUs for one model",
        asking=(
            "what [is|'s] [missing|not there yet|not supported|still missing][| in inferno]",
            "what can [inferno|it] not do[| yet]",
            "what does inferno lack",
            "[does|can] [it|inferno|the server] [do|make|compute|support] embeddings",
        ),
    ),
)
