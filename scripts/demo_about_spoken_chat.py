"""How people ask about chats, answers and scripts, by the answers."""

from __future__ import annotations

SPOKEN_CHAT: dict[str, tuple[str, ...]] = {
    "Press Ctrl+C to stop": (
        "[it|the model|demo] [keeps|goes on] [talking|writing|babbling][. How do I stop that|. "
        "Make it stop|. Help]",
        "how do I [interrupt|silence|cut off|hush] [it|you|the model] [in the middle|half "
        "way|while it writes|in mid-sentence]",
        "[be quiet|shut up|stop talking|enough|stop now]",
        "I have [heard|read|seen] enough of [this|the] answer",
        "the answer [goes|runs] in the wrong direction[. Can I stop it|. How do I stop it]",
        "[what|which key] do I [hit|press] to [silence|interrupt|stop] [it|the model|you]",
        "will the [half|broken-off|partial] answer be [kept|lost] when I interrupt it",
        "how [can|do] I [make|get] it [to |]shut up[| now| at once]",
        "[it|you|the model] [talks|goes] on and on[. How do I shut it up|. Make it stop]",
        "[what|which key] do I press [while|when] it is [still talking|still writing|answering]",
        "can I [cut it short|silence it|shut you up] [in the middle|before it ends|while it talks]",
    ),
    "Type /exit": (
        "[which|what] key [ends|closes|leaves] the [chat|conversation|program]",
        "[what|which key] do I [press|hit] to [get out of|leave|end] the [chat|conversation|talk]",
        "I am [done|finished][. How do I leave|. How do I get out|]",
        "[goodbye, how do I close this|let me out|I want out|get me out of here]",
        "how do I [end|close|leave|quit] [this|the conversation|the program|our talk]",
        "how do I go back to [my|the] [shell|prompt|terminal]",
        "[what|which key] [do|should] I press to [leave|quit|get out|get away|end the chat]",
        "how do I get out of [here|this|the chat|the program|this conversation]",
    ),
    "Type /reset": (
        "[let us|let's] [begin|start] [from the beginning|from scratch|all over]",
        "[wipe|erase|empty] [the slate|our conversation|the history|your memory]",
        "it [still remembers|should not remember] what I said [before|at first]",
        "how do I get an empty [conversation|chat|history]",
        "[make|let] [it|the model|you] forget [everything|all that|what] we [said|have said|wrote]",
        "[forget|wipe] [what we talked about|all we said|our talk]",
        "I want [to begin from nothing|an empty chat|a clean start]",
    ),
    "Type /save": (
        "I want to [keep|archive|print|send] this [conversation|chat]",
        "can the [conversation|chat|dialogue] be [written|saved|stored] [to|in|as] a file",
        "how do I get [a copy|a transcript] of [our|this|the] [talk|chat|conversation]",
        "[put|write] our [conversation|chat] into a file",
        "how [can|could] I [keep|put] [what we said|our talk] [in|into] a file",
    ),
    "Type /retry": (
        "that [answer|was a bad answer] [was|is] [wrong|bad|nonsense][. Once more|. Again please|]",
        "let [it|the model] try [once more|a second time|that again]",
        "[say|answer] that again [differently|in another way]",
        "I want a [second|different|fresh] [answer|reply] to the same question",
    ),
    "Type /set to change": (
        "can I [change|turn] [settings|options|the knobs] while [I chat|the chat runs]",
        "how do I [alter|change] a setting without [leaving|ending] the chat",
        "where are the [settings|knobs] in the chat",
    ),
    "Type /system": (
        "how do I [make|have] it [speak|answer|talk] like [a pirate|a teacher|a child]",
        "how can I [tell|instruct] [it|the model] [to be brief|who it is|how to answer|to be "
        "polite]",
        "I want to [define|give|set] its [role|character|personality]",
        "where do [instructions|orders] for the model go",
    ),
    "Type /stats": (
        "how many tokens have [we|I] [used|said|spent] in [this|the] chat",
        "[how|where] do I see [the speed|tokens per second|the memory] [while|when] I chat",
        "how [quick|fast] was [that|that answer|the last answer]",
    ),
    "Type /trim": (
        "[it|inferno|the chat] [says|tells me] [that |]the context is [full|used up|exhausted][. "
        "What now|. And now|]",
        "the [conversation|chat] [has become|became|is] too long[. What can I drop|]",
        "there is no [room|space] [left |]in the context",
        "can it [drop|forget] [only |][the beginning|old turns|the first messages]",
    ),
    "End a line with": (
        "[Enter|the return key] sends [it|my message] too early",
        "how do I [put|write|paste] [a poem|code|several lines|a paragraph] into one message",
        "my message has [several|two|many] lines",
    ),
    "The messages that you type": (
        "does [it|inferno] [write down|log|record] what I [say|type|ask]",
        "who can read my [chats|messages|questions] [later|afterwards]",
        "are [our talks|answers|my chats] [logged|recorded|written down]",
    ),
    "For the likeliest tokens": (
        "[it|the model|demo] is too [creative|wild|random|silly|crazy]",
        "how do I make [it|the answers|the text] [more|less] [random|creative|surprising|boring]",
        "where do I turn [down|up] the [randomness|chance|temperature]",
        "I want [sober|predictable|boring|careful] answers",
        "[what|which] [knob|option] is for [chance|randomness|creativity]",
        "[it|the model] [should|must] be less [wild|surprising]",
    ),
    "For the same text": (
        "[every|each] time I get [another|a different] [text|answer|story][. Can it be the same|]",
        "how do I [make|get] [it|results|the text] [reproducible|repeatable|deterministic]",
        "I need [reproducible|repeatable] [results|outputs|texts]",
        "can I [repeat|reproduce] [a run|an answer|the result] [exactly|to the letter]",
        "[do|will] I get the same [text|words|answer] tomorrow",
        "I want the [very same|identical] [text|words] [again|each time]",
    ),
    "Set the most new tokens": (
        "it [writes|says|tells me] [too much|a whole novel|far too much]",
        "the [text|answer|output] ends too [early|soon][. How do I make it longer|]",
        "how do I [make|get] [it|the text|the answer|answers] [longer|shorter]",
        "I [want|need] [only|just|at most] [forty|fifty|a hundred|a few] [tokens|words]",
        "where do I set [how long|the length of] [the answer|an answer|the text] [is|may be|]",
        "it stops [in the middle|too soon|after a few words]",
        "the answers are [far too long|endless][|. Make them short]",
    ),
    "Give a text that ends": (
        "it should [stop|end] [at|when it says|after] [END|a full stop|a certain word|a blank "
        "line]",
        "how do I set a stop [word|string|text|sequence]",
        "can a word [end|stop] the [output|text|answer]",
    ),
    "Give them together": (
        "how do I run [lots of|a hundred|a whole list of|five hundred] prompts[| in one go]",
        "my prompts [are|stand|lie] in a [text file|file][, one a line|]",
        "can it [work|go] through a [list|file] of prompts",
        "I have [very many|ten thousand|a big list of] [prompts|questions][. How do I run them|]",
        "I have [a thousand|hundreds of|many|a file of] prompts[| in a file][. What now|. How]",
    ),
    "For one JSON object": (
        "my [script|program|tool] [has to|must|should] [parse|read|understand] the [output|result]",
        "how do I get output [for machines|that a program can read|for a script]",
        "[which|what] [option|flag|switch] is for [programs|scripts|machines]",
        "I want JSON [lines|objects|on standard output] instead of [text|plain text]",
    ),
    "Give - as the prompt": (
        "how do I [pipe|send|put] [a file|text|the output of another command] into [it|inferno]",
        "can [it|inferno] [sit|stand] in a [pipe|pipeline]",
        "my prompt comes [from|out of] another [program|command]",
    ),
    "To see what the engine": (
        "I want to see what [happens|goes on] inside",
        "where is the [traceback|stack trace|whole error]",
        "it [says|tells me] too little[. How do I see more|]",
    ),
    "The exit code is": (
        "how does my [script|shell|Makefile] [notice|know|see] that it failed",
        "what does it return to the shell",
        "which [status|number] comes back [when|if] it [fails|works]",
    ),
    "Against repetition": (
        "it [says|repeats|writes] the same [sentence|thing|words] [over and over|again and again]",
        "it is [stuck|caught] in a loop[| of words]",
        "the text [repeats itself|turns in circles|is full of repetitions]",
    ),
    "Keep only likely tokens": (
        "how do I [cut|leave] [off|out] unlikely [tokens|words]",
        "does it [have|do|know] [nucleus sampling|top-p sampling|min-p]",
        "how can rare words be [avoided|ruled out]",
    ),
}
